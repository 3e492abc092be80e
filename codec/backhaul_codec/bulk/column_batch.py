"""Make the columns of many frames, laid end to end, into one Arrow record batch.

Two orders of points occur. *Arrival* order is the order of the rows. *Series* order, in which a
frame keeps its values, has the points of its first series, then of its second, and so on; over
many frames, the series of the first frame come first. `_Batch.order` leads from one to the other.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from backhaul_codec.bulk.frame_columns import Array, Columns, Strings, starts
from backhaul_codec.errors import CodecError
from backhaul_codec.points import BYTES, FLOAT64, INT64, NAME_BYTES_MAX, UINT64
from backhaul_codec.rules import blob_size
from backhaul_codec.wire.frame_fields import (
    BLOB_COLUMN,
    FLOAT32_COLUMN,
    FLOAT64_COLUMN,
    POWERS,
    is_text,
)

SCHEMA = pa.schema(
    [
        pa.field("message", pa.int32()),
        pa.field("node", pa.string()),
        pa.field("type", pa.string()),
        pa.field("key", pa.string()),
        pa.field("time", pa.int64()),
        pa.field("dtype", pa.uint8()),
        pa.field("f64", pa.float64()),
        pa.field("i64", pa.int64()),
        pa.field("text", pa.string()),
        pa.field("data", pa.binary()),
        pa.field("tombstone", pa.uint8()),
        pa.field("origin", pa.string()),
        pa.field("clock", pa.uint8()),
        pa.field("epoch", pa.uint32()),
        pa.field("seq", pa.uint64()),
    ]
)

# Arrow's string and binary arrays count their bytes in an int32.
TEXT_BYTES_MAX = 2**31 - 1
_NAMES_BYTES_MAX = 2 * NAME_BYTES_MAX + 1  # both ends of an edge
_POWERS = np.array(POWERS)
_IS_TEXT = np.array([is_text(dtype) for dtype in range(256)])
# In place of a column number, where a point's value is the base of its series.
_BASE = 255


def assemble(columns: Columns, texts_max: int) -> pa.RecordBatch:
    """Return the points of proven frames as rows of SCHEMA, in the order of their messages.

    Raises: CodecError (`batch`) if all texts would pass `texts_max` bytes, or a column 2 GiB.
    """
    if _texts_bytes(columns) > texts_max:
        raise CodecError(
            f"the texts of a batch pass {texts_max} bytes: give fewer messages", "batch"
        )
    batch = _Batch(columns)
    message = batch.per_frame(columns.message.astype(np.int32))
    order = _order_of(message)
    dtype = batch.dtypes()[order]
    numbers, doubles = batch.numbers_and_doubles()
    text, data = batch.text_and_data(dtype, order)
    found = [
        message[order],
        batch.per_series(columns.node, order),
        batch.per_series(columns.type, order),
        batch.per_series(columns.key, order),
        batch.times()[order],
        dtype,
        pa.array(doubles[order], mask=dtype != FLOAT64, from_pandas=False),
        pa.array(numbers[order], mask=(dtype != INT64) & (dtype != UINT64)),
        text,
        data,
        np.zeros(batch.rows, np.uint8) if columns.tomb is None else columns.tomb[order],
        batch.origins(order),
        batch.per_frame(columns.clock.astype(np.uint8))[order],
        batch.per_frame(columns.epoch.astype(np.uint32))[order],
        batch.per_frame(columns.seq.astype(np.uint64))[order],
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array(column) if isinstance(column, np.ndarray) else column for column in found],
        schema=SCHEMA,
    )


def _texts_bytes(columns: Columns) -> int:
    """Return the size of the names and texts of all points, each with copies of its own."""
    size = sum(
        int(_lengths(strings.texts)[strings.number_of] @ columns.counts)
        for strings in (columns.node, columns.type, columns.key)
        if strings is not None
    )
    if columns.origin is not None:
        size += int(_lengths(columns.origin.texts)[columns.origin.number_of].sum())
    if columns.blobs is not None:
        sizes = np.array([blob_size(blob) for blob in columns.blobs], np.int64)
        size += int(sizes[columns.entries[BLOB_COLUMN]].sum())
    return size


def _lengths(texts: list[str]) -> Array:
    lengths: Array = (
        pc.binary_length(pa.array(texts, pa.string()))
        .to_numpy(zero_copy_only=False)
        .astype(np.int64)
    )
    return lengths


def _order_of(message: Array) -> Array | slice:
    """Return the rows by their messages, those of one message as they are."""
    if (message[1:] >= message[:-1]).all():
        return slice(None)
    return np.argsort(message, kind="stable")


class _Batch:
    """Hold where the points and series of each frame are among those of all frames."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.points = columns.points
        self.starts = starts(self.points)
        self.rows = int(self.points.sum())
        self.counts = columns.counts
        self.dtype_of, self.column_of, self.exponent_of = columns.kinds.T
        # The series of each row, counted through all frames.
        self.series = columns.sid.astype(np.int64)
        self.series += np.repeat(starts(columns.series), self.points)
        self.order = _stable_order(self.series, len(self.counts))
        # The column of each point in series order, _BASE where its value is a base.
        self.series_starts = starts(self.counts)
        self.column = np.repeat(self.column_of, self.counts)
        self.column[self.series_starts[self.column_of < 4]] = _BASE

    def per_frame(self, values: Array) -> Array:
        """Give each row the value of its frame."""
        return np.repeat(values, self.points)

    def per_series(self, strings: Strings | None, order: Array | slice) -> pa.Array:
        """Give each row the text of its series."""
        if strings is None:
            return pa.repeat("", self.rows)
        return _names(strings.texts, strings.number_of[self.series[order]])

    def dtypes(self) -> Array:
        """Return the dtype of each row."""
        of_rows: Array = self.dtype_of[self.series]
        return of_rows

    def times(self) -> Array:
        """Return the time of each row, in ns."""
        steps = np.empty(self.rows, np.uint64)
        later = np.ones(self.rows, np.bool_)
        later[self.starts] = False
        steps[later] = self.columns.dt.astype(np.int64).view(np.uint64)
        steps *= np.repeat(self.columns.unit, self.points)
        steps[self.starts] = self.columns.t0.view(np.uint64)
        return _running_sums(steps, self.starts, self.points).view(np.int64)

    def numbers_and_doubles(self) -> tuple[Array, Array]:
        """Return for each row its integer (0 where it has none) and its double (or nonsense)."""
        entries = self.columns.entries
        numbers = np.zeros(self.rows, np.uint64)
        for column in range(4):
            if column in entries:
                steps = entries[column].astype(np.int64)
                numbers[self.column == column] = steps.view(np.uint64)
        numbers[self.column == _BASE] = self.columns.bases
        numbers = _running_sums(numbers, self.series_starts, self.counts).view(np.int64)
        doubles = numbers / np.repeat(_POWERS[self.exponent_of], self.counts)
        for column in (FLOAT32_COLUMN, FLOAT64_COLUMN):
            if column in entries:
                with np.errstate(invalid="ignore"):  # a signalling float32 NaN turns quiet
                    doubles[self.column == column] = entries[column]
        return self._in_arrival_order(numbers), self._in_arrival_order(doubles)

    def text_and_data(self, dtype: Array, order: Array | slice) -> tuple[pa.Array, pa.Array]:
        """Return for each row its text and its bytes, null where the dtype has none."""
        blobs = self.columns.blobs
        if blobs is None:
            return pa.nulls(self.rows, pa.string()), pa.nulls(self.rows, pa.binary())
        in_series_order = np.zeros(self.rows, np.int64)
        in_series_order[self.column == BLOB_COLUMN] = self.columns.entries[BLOB_COLUMN]
        indices = self._in_arrival_order(in_series_order)[order]
        has_text = _IS_TEXT[dtype]
        has_data = (dtype >= BYTES) & ~has_text
        texts = pa.array([b if isinstance(b, str) else None for b in blobs], pa.string())
        datas = pa.array([b if isinstance(b, bytes) else None for b in blobs], pa.binary())
        return _take(texts, indices, has_text), _take(datas, indices, has_data)

    def origins(self, order: Array | slice) -> pa.Array:
        """Return the origin of each row."""
        origin = self.columns.origin
        if origin is None:
            return pa.repeat("", self.rows)
        return _names(origin.texts, origin.number_of[order])

    def _in_arrival_order(self, values: Array) -> Array:
        arrived = np.empty_like(values)
        arrived[self.order] = values
        return arrived


def _names(names: list[str], indices: Array) -> pa.Array:
    return _take(pa.array(names, pa.string()), indices)


def _take(strings: pa.Array, indices: Array, valid: Array | None = None) -> pa.Array:
    """Return strings[indices], null where not valid."""
    if len(indices) * _NAMES_BYTES_MAX > TEXT_BYTES_MAX or valid is not None:
        lengths = pc.binary_length(strings).fill_null(0).to_numpy(zero_copy_only=False)
        taken = lengths.astype(np.int64)[indices if valid is None else indices[valid]]
        if int(taken.sum()) > TEXT_BYTES_MAX:
            raise CodecError("the texts of a batch pass 2 GiB: give fewer messages", "batch")
    mask = None if valid is None else ~valid
    return strings.take(pa.array(indices, mask=mask))


def _running_sums(values: Array, starts: Array, sizes: Array) -> Array:
    """Sum up modulo 2**64, beginning again at each start."""
    sums = np.cumsum(values)
    sums -= np.repeat(sums[starts] - values[starts], sizes)
    return sums


def _stable_order(series: Array, count: int) -> Array:
    """Return the rows by series, those of one series as they arrived.

    numpy sorts 16-bit keys by radix, many times faster than wider ones: so in two steps of 16.
    """
    low = series.astype(np.uint16)
    order = np.argsort(low, kind="stable")
    if count > 1 << 16:
        high = (series >> 16).astype(np.uint16)
        order = order[np.argsort(high[order], kind="stable")]
    return order

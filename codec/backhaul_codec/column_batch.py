"""Put the columns of many frames together into one Arrow record batch.

Two orders of points occur. *Arrival* order is the order of the rows. *Series* order, in which a
frame keeps its values, has the points of its first series, then of its second, and so on; over
many frames, the series of the first frame come first. `_Batch.order` leads from one to the other.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from backhaul_codec.errors import CodecError
from backhaul_codec.frame_fields import (
    BLOB_COLUMN,
    FLOAT32_COLUMN,
    FLOAT64_COLUMN,
    FLOAT_WIDTHS,
    POWERS,
    SIGNED_CODES,
    is_text,
)
from backhaul_codec.frame_layout import Numbers, unplane
from backhaul_codec.points import BYTES, FLOAT64, INT64, NAME_BYTES_MAX, UINT64

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from backhaul_codec.frame_layout import Layout
    from backhaul_codec.points import Header

Array: TypeAlias = npt.NDArray[Any]

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
_TEXT_BYTES_MAX = 2**31 - 1
_NAMES_BYTES_MAX = 2 * NAME_BYTES_MAX + 1  # both ends of an edge
_POWERS = np.array(POWERS)
_IS_TEXT = np.array([is_text(dtype) for dtype in range(256)])
_DTYPES = {
    code: np.dtype(letters)
    for code, letters in zip(
        "bhiqBHI", ("i1", "<i2", "<i4", "<i8", "u1", "<u2", "<u4"), strict=True
    )
}
# In place of a column number, where a point's value is the base of its series.
_BASE = 255


def assemble(
    messages: Sequence[int], headers: Sequence[Header], layouts: Sequence[Layout]
) -> pa.RecordBatch:
    """Return the points of proven layouts as rows of SCHEMA; the three lists are parallel.

    Raises: CodecError (`batch`) if a column would pass 2 GiB.
    """
    if not layouts:
        return pa.RecordBatch.from_pylist([], schema=SCHEMA)
    batch = _Batch(layouts)
    dtype = batch.dtypes()
    numbers, doubles = batch.numbers_and_doubles()
    text, data = batch.text_and_data(dtype)
    columns = [
        batch.per_frame(messages, np.int32),
        batch.nodes(),
        batch.types(),
        batch.keys(),
        batch.times(),
        dtype,
        pa.array(doubles, mask=dtype != FLOAT64, from_pandas=False),
        pa.array(numbers, mask=(dtype != INT64) & (dtype != UINT64)),
        text,
        data,
        batch.tombstones(),
        batch.origins(),
        batch.per_frame([layout.clock for layout in layouts], np.uint8),
        batch.per_frame([header.epoch for header in headers], np.uint32),
        batch.per_frame([header.seq for header in headers], np.uint64),
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array(column) if isinstance(column, np.ndarray) else column for column in columns],
        schema=SCHEMA,
    )


class _Batch:
    """Hold where the points and series of each frame are among those of all frames."""

    def __init__(self, layouts: Sequence[Layout]) -> None:
        self.layouts = layouts
        self.points = np.array([layout.n for layout in layouts])  # per frame
        self.starts = _starts(self.points)
        self.rows = int(self.points.sum())
        self.counts = _ints(layout.counts for layout in layouts)  # points per series
        kinds = np.frombuffer(b"".join([layout.kinds for layout in layouts]), np.uint8)
        self.dtype_of, self.column_of, self.exponent_of = kinds.reshape(-1, 3).T
        # The series of each row, counted through all frames.
        series_per_frame = np.array([len(layout.types) for layout in layouts])
        self.series = _joined([layout.sid for layout in layouts], self.points).astype(np.int64)
        self.series += np.repeat(_starts(series_per_frame), self.points)
        self.order = _stable_order(self.series, len(self.counts))
        # The column of each point in series order, _BASE where its value is a base.
        self.series_starts = _starts(self.counts)
        self.column = np.repeat(self.column_of, self.counts)
        self.column[self.series_starts[self.column_of < 4]] = _BASE

    def per_frame(self, values: Sequence[int], dtype: npt.DTypeLike) -> Array:
        """Give each row the value of its frame."""
        return np.repeat(np.array(values, dtype), self.points)

    def nodes(self) -> pa.Array:
        """Return the node of each row."""
        if all(layout.nodes is None for layout in self.layouts):
            nodes = [layout.node for layout in self.layouts]
            return self._names(nodes, self.per_frame(range(len(nodes)), np.int32))
        named = [layout.nodes or [layout.node] * len(layout.types) for layout in self.layouts]
        return self._names(list(chain.from_iterable(named)), self.series)

    def types(self) -> pa.Array:
        """Return the type of each row."""
        types = [type_ for layout in self.layouts for type_ in layout.types]
        return self._names(types, self.series)

    def keys(self) -> pa.Array:
        """Return the key of each row."""
        if all(layout.keys is None for layout in self.layouts):
            return pa.repeat("", self.rows)
        keys = [layout.keys or [""] * len(layout.types) for layout in self.layouts]
        return self._names(list(chain.from_iterable(keys)), self.series)

    def dtypes(self) -> Array:
        """Return the dtype of each row."""
        return self.dtype_of[self.series]

    def times(self) -> Array:
        """Return the time of each row, in ns."""
        steps = np.empty(self.rows, np.uint64)
        later = np.ones(self.rows, np.bool_)
        later[self.starts] = False
        units = np.array([layout.unit for layout in self.layouts], np.uint64)
        dt = _joined([layout.dt for layout in self.layouts], self.points - 1)
        steps[later] = dt.astype(np.int64).view(np.uint64)
        steps *= np.repeat(units, self.points)
        steps[self.starts] = np.array([layout.t0 for layout in self.layouts]).view(np.uint64)
        return _running_sums(steps, self.starts, self.points).view(np.int64)

    def numbers_and_doubles(self) -> tuple[Array, Array]:
        """Return for each row its integer (0 where it has none) and its double (or nonsense)."""
        numbers = np.zeros(self.rows, np.uint64)
        for column, code in enumerate(SIGNED_CODES.values()):
            parts = [layout.numbers.get(column) for layout in self.layouts]
            data = b"".join([part.data for part in parts if part is not None])
            if data:
                steps = np.frombuffer(data, _DTYPES[code]).astype(np.int64)
                numbers[self.column == column] = steps.view(np.uint64)
        bases = chain.from_iterable([layout.bases for layout in self.layouts])
        numbers[self.column == _BASE] = np.array([base % 2**64 for base in bases], np.uint64)
        numbers = _running_sums(numbers, self.series_starts, self.counts).view(np.int64)
        doubles = numbers / np.repeat(_POWERS[self.exponent_of], self.counts)
        for column, letter in ((FLOAT32_COLUMN, "<f4"), (FLOAT64_COLUMN, "<f8")):
            parts_of = [layout.planes[column] for layout in self.layouts if column in layout.planes]
            if parts_of:
                raw = b"".join([unplane(planes, FLOAT_WIDTHS[column]) for planes in parts_of])
                with np.errstate(invalid="ignore"):  # a signalling float32 NaN turns quiet
                    doubles[self.column == column] = np.frombuffer(raw, letter)
        return self._in_arrival_order(numbers), self._in_arrival_order(doubles)

    def text_and_data(self, dtype: Array) -> tuple[pa.Array, pa.Array]:
        """Return for each row its text and its bytes, null where the dtype has none."""
        indexed = [layout for layout in self.layouts if BLOB_COLUMN in layout.numbers]
        if not indexed:
            return pa.nulls(self.rows, pa.string()), pa.nulls(self.rows, pa.binary())
        parts = [layout.numbers[BLOB_COLUMN] for layout in indexed]
        sizes = np.array([len(part) for part in parts])
        offsets = np.repeat(_starts(np.array([len(layout.blobs) for layout in indexed])), sizes)
        in_series_order = np.zeros(self.rows, np.int64)
        in_series_order[self.column == BLOB_COLUMN] = _joined(parts, sizes) + offsets
        indices = self._in_arrival_order(in_series_order)
        blobs = list(chain.from_iterable([layout.blobs for layout in indexed]))
        has_text = _IS_TEXT[dtype]
        has_data = (dtype >= BYTES) & ~has_text
        texts = pa.array([b if isinstance(b, str) else None for b in blobs], pa.string())
        datas = pa.array([b if isinstance(b, bytes) else None for b in blobs], pa.binary())
        return _take(texts, indices, has_text), _take(datas, indices, has_data)

    def tombstones(self) -> Array:
        """Return the tombstone of each row."""
        if all(layout.tomb is None for layout in self.layouts):
            return np.zeros(self.rows, np.uint8)
        parts = [layout.tomb or bytes(layout.n) for layout in self.layouts]
        return np.frombuffer(b"".join(parts), np.uint8)

    def origins(self) -> pa.Array:
        """Return the origin of each row."""
        if all(layout.origin_of is None for layout in self.layouts):
            return pa.repeat("", self.rows)
        names = [layout.origins or [""] for layout in self.layouts]
        parts = [layout.origin_of or Numbers("B", bytes(layout.n)) for layout in self.layouts]
        offsets = np.repeat(_starts(np.array([len(some) for some in names])), self.points)
        return self._names(list(chain.from_iterable(names)), _joined(parts, self.points) + offsets)

    def _names(self, names: list[str], indices: Array) -> pa.Array:
        return _take(pa.array(names, pa.string()), indices)

    def _in_arrival_order(self, values: Array) -> Array:
        arrived = np.empty_like(values)
        arrived[self.order] = values
        return arrived


def _take(strings: pa.Array, indices: Array, valid: Array | None = None) -> pa.Array:
    """Return strings[indices], null where not valid."""
    if len(indices) * _NAMES_BYTES_MAX > _TEXT_BYTES_MAX or valid is not None:
        lengths = pc.binary_length(strings).fill_null(0).to_numpy(zero_copy_only=False)
        taken = lengths.astype(np.int64)[indices if valid is None else indices[valid]]
        if int(taken.sum()) > _TEXT_BYTES_MAX:
            raise CodecError("the texts of a batch pass 2 GiB: give fewer messages", "batch")
    mask = None if valid is None else ~valid
    return strings.take(pa.array(indices, mask=mask))


def _joined(parts: Sequence[Numbers], sizes: Array) -> Array:
    """Return the numbers of all parts one after the other; `sizes` says how many each has."""
    codes = {part.code for part in parts}
    if len(codes) == 1:
        return np.frombuffer(b"".join([part.data for part in parts]), _DTYPES[codes.pop()])
    numbers = np.empty(int(sizes.sum()), np.int64)
    for code in codes:
        mine = np.repeat(np.array([part.code == code for part in parts]), sizes)
        data = b"".join([part.data for part in parts if part.code == code])
        numbers[mine] = np.frombuffer(data, _DTYPES[code])
    return numbers


def _ints(lists: Iterable[list[int]]) -> Array:
    return np.fromiter(chain.from_iterable(lists), np.int64)


def _starts(sizes: Array) -> Array:
    """Return where each of consecutive runs starts."""
    return np.cumsum(sizes) - sizes


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

"""Make rows of a fixed size of points, as a rollup sorts and sums them. No Spark in here.

A row has numbers for its names, and where its text is: many million of them can lie in a file, be sorted
there and be read again in parts (`rollup/sorted_rows.py`), and what a text comes to does not matter.
"""

from __future__ import annotations

import os
import tempfile
from hashlib import blake2b
from typing import IO

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from backhaul_codec.kinds import POINT
from backhaul_codec.points import FLOAT64
from backhaul_spark.arrays import Ints
from backhaul_spark.rollup.read import numbers_of

SERIES = ("device", "node", "type", "key")
# The columns of points that rows are made of.
INPUT = (
    *SERIES,
    *("time_ns", "seq", "index", "epoch", "lane", "letter", "dtype"),
    *("value_f64", "value_i64", "value_text"),
)
ROW = np.dtype(
    [
        ("series", "i4"),  # its row in `RowMaker.names`
        ("lane", "i4"),  # its place in `RowMaker.lanes`
        ("time_ns", "i8"),
        ("seq", "i8"),
        ("epoch", "i8"),
        ("index", "i4"),
        ("dtype", "u1"),
        ("alone", "?"),  # it came on live, letter p
        ("value", "f8"),  # of a number
        ("says", "i8", (2,)),  # with dtype: the same for the same value, bit for bit
        ("text_at", "i8"),  # in `RowMaker.texts`
        ("text_len", "i4"),
    ]
)
# Texts are kept in memory up to here, and the places of the last ones.
TEXT_BYTES = 16 << 20
TEXTS_KNOWN = 1 << 14


def scratch_file(in_memory: int = 0) -> IO[bytes]:
    """Return a file without a name, gone when it is closed, where Spark (or the system) has room.

    It is in memory while it has no more than `in_memory` bytes.
    """
    where = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
    if in_memory:
        return tempfile.SpooledTemporaryFile(in_memory, dir=where)
    return tempfile.TemporaryFile(dir=where)


class Texts:
    """Texts in a file without a name."""

    def __init__(self) -> None:
        self._file = scratch_file(TEXT_BYTES)
        self._known: dict[bytes, int] = {}
        self._end = 0

    def put(self, text: bytes, digest: bytes) -> int:
        """Return where a text begins."""
        at = self._known.get(digest)
        if at is not None:
            return at
        if len(self._known) == TEXTS_KNOWN:
            self._known.clear()
        at = self._known[digest] = self._end
        self._file.seek(at)
        self._file.write(text)
        self._end += len(text)
        return at

    def get(self, at: int, length: int) -> str:
        """Return a text."""
        self._file.seek(at)
        return self._file.read(length).decode()

    def close(self) -> None:
        """Give the room back."""
        self._file.close()


class RowMaker:
    """Make rows of the points of some series.

    Args:
        series: their names (columns SERIES), each once. Points of others are left out.

    Attributes:
        names: the series as given; a row has its place there.
        lanes: names of lanes; a row has its place there.
        texts: the texts of rows.
    """

    def __init__(self, series: pa.Table) -> None:
        self._levels: list[tuple[pa.Array, Ints]] = []
        codes = np.zeros(series.num_rows, np.int64)
        for name in SERIES:
            names = pc.unique(series.column(name))
            pairs = codes * len(names) + pc.index_in(series.column(name), names).to_numpy()
            known, codes = np.unique(pairs, return_inverse=True)
            self._levels.append((names, known))
        self.names = series.select(SERIES).take(pa.array(np.argsort(codes))).combine_chunks()
        self.lanes: list[str] = []
        self.texts = Texts()

    def rows(self, batch: pa.RecordBatch) -> NDArray[np.void]:
        """Return the rows (dtype ROW) of readings (columns INPUT), in the same order."""
        series = self.series_of(batch)
        if (series < 0).any():
            batch = batch.filter(pa.array(series >= 0))
            series = series[series >= 0]
        rows = np.zeros(batch.num_rows, ROW)
        rows["series"] = series
        for name in ("time_ns", "seq", "epoch", "index"):
            rows[name] = batch.column(name).to_numpy()
        rows["lane"] = self._lanes_of(batch.column("lane"))
        rows["alone"] = pc.equal(batch.column("letter"), POINT.letter).to_numpy(
            zero_copy_only=False
        )
        dtype = rows["dtype"] = batch.column("dtype").to_numpy()
        bits = pc.fill_null(batch.column("value_i64"), 0).to_numpy()
        floats = pc.fill_null(batch.column("value_f64"), 0.0).to_numpy()
        rows["value"] = numbers_of(batch)
        rows["says"][:, 0] = np.where(dtype == FLOAT64, floats.view(np.int64), bits)
        self._put_texts(batch.column("value_text"), rows)
        return rows

    def series_of(self, batch: pa.RecordBatch) -> Ints:
        """Return the series (columns SERIES) of each row, -1 for one that is not wanted."""
        codes = np.zeros(batch.num_rows, np.int64)
        for name, (names, known) in zip(SERIES, self._levels, strict=True):
            column = _encoded(batch.column(name))
            places = pc.fill_null(pc.index_in(column.dictionary, names), -1).to_numpy()
            place = places[column.indices.to_numpy()]
            pairs = codes * len(names) + place
            at = np.minimum(np.searchsorted(known, pairs), len(known) - 1)
            codes = np.where((codes >= 0) & (place >= 0) & (known[at] == pairs), at, -1)
        return codes

    def close(self) -> None:
        """Give the room back."""
        self.texts.close()

    def _lanes_of(self, column: pa.Array) -> Ints:
        encoded = _encoded(column)
        names = encoded.dictionary.to_pylist()
        self.lanes += [name for name in names if name not in self.lanes]
        places = np.asarray([self.lanes.index(name) for name in names], np.int64)
        found: Ints = places[encoded.indices.to_numpy()]
        return found

    def _put_texts(self, column: pa.Array, rows: NDArray[np.void]) -> None:
        if column.null_count == len(column):
            return
        encoded = _encoded(column)
        there = np.flatnonzero(pc.is_valid(encoded.indices).to_numpy(zero_copy_only=False))
        indices = pc.drop_null(encoded.indices).to_numpy()
        used, which = np.unique(indices, return_inverse=True)
        facts = np.zeros(len(used), ROW)
        for at, text in enumerate(encoded.dictionary.take(pa.array(used))):
            data = text.as_buffer().to_pybytes()
            digest = blake2b(data, digest_size=16).digest()
            fact = facts[at]
            fact["says"] = np.frombuffer(digest, np.int64)
            fact["text_at"], fact["text_len"] = self.texts.put(data, digest), len(data)
        for name in ("says", "text_at", "text_len"):
            rows[name][there] = facts[name][which]


def _encoded(column: pa.Array) -> pa.DictionaryArray:
    return column if isinstance(column, pa.DictionaryArray) else column.dictionary_encode()

"""Keep a reading that a vehicle sends a second time once in points, by its contents. No Spark.

When vehicle and hub compare their heads, the vehicle sends some again, in frames that say so. Mostly the
first is in points, or on its way. But it may have been evicted, or gone with a ledger: then the second is
the only one there is. So an executor puts what is said again aside; the driver looks in points for it, and
adds what is not there. Of what was added so a note stays in `said_again`: if the first comes after all, the
executor leaves that out.

An agent that does not mark such frames yet, and a vehicle that marks more than any agent does, have their
readings written as they come. `ingest/once.py` takes their doubles out later.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.dataset as ds  # type: ignore[import-untyped]

from backhaul_codec.kinds import POINT
from backhaul_codec.wire.messages import is_said_again
from backhaul_spark.arrays import Flags
from backhaul_spark.columns import packed, unpacked
from backhaul_spark.decode.points import POINTS, TIMELESS, Decoded
from backhaul_spark.nats.messages import leaf_of
from backhaul_spark.tables.files import open_input
from backhaul_spark.tables.part_file import read_batches

# Its time in ns, and its digest.
Note: TypeAlias = tuple[int, bytes]
# Two points that agree in all of these are one reading: whoever wrote it, at a time, of a series.
SAME = (
    *("device", "node", "type", "key", "time_ns", "dtype", "tombstone", "origin"),
    *("value_f64", "value_i64", "value_text", "value_bytes"),
)
LETTER = POINT.letter
# An agent says 200 heads or 64 KiB a frame. The driver takes in what is put aside, so that is bounded:
# by message, and by task.
FRAME_POINTS_MAX = 200
FRAME_BYTES_MAX = 256 << 10
ASIDE_BYTES_MAX = 16 << 20
# The newest so many notes are looked at: 100 bytes each, in the driver and in every task.
NOTES_MAX = 100_000


def digests(points: pa.Table | pa.RecordBatch) -> list[bytes]:
    """Return 16 bytes for each row that stand for its contents, bit for bit (columns SAME).

    A long text that stands in many rows is in memory once, if the rows have it so.
    """
    if isinstance(points, pa.Table):
        return [each for batch in points.to_batches() for each in digests(batch)]
    columns = [_words(points.column(name)) for name in SAME]
    return [_digest(repr(row).encode()) for row in zip(*columns, strict=True)]


def _words(column: pa.Array) -> list[Any]:
    """Return numbers as they are, doubles by their bits (NaN, -0.0), and digests for texts."""
    if pa.types.is_floating(column.type):
        column = column.view(pa.int64())
    if pa.types.is_integer(column.type):
        return column.to_pylist()  # type: ignore[no-any-return]
    if not isinstance(column, pa.DictionaryArray):
        column = column.dictionary_encode()
    known = [
        value if value is None else _digest(value if isinstance(value, bytes) else value.encode())
        for value in column.dictionary.to_pylist()
    ]
    return [None if index is None else known[index] for index in column.indices.to_pylist()]


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


class Aside:
    """The readings that one task puts aside.

    Args:
        standing: readings that stand in points because they were said again.
    """

    def __init__(self, standing: Collection[Note] = ()) -> None:
        self._standing = frozenset(digest for _, digest in standing)
        self._times = np.unique(np.fromiter((time_ns for time_ns, _ in standing), np.int64))
        self._tables: list[pa.Table] = []
        self._bytes = 0

    def rest(self, decoded: Decoded) -> pa.RecordBatch:
        """Return the points of a chunk that are to be written as they are."""
        points = decoded.points
        drop = self._again(decoded)
        if drop.any():
            again = _plain(points.filter(pa.array(drop)))
            self._tables.append(again)
            self._bytes += again.nbytes
        if self._standing:
            drop = drop | self._late(points, drop)
        return points.filter(pa.array(~drop)) if drop.any() else points

    def _again(self, decoded: Decoded) -> Flags:
        """Return which points are of frames that say that they were sent before."""
        marked = np.zeros(decoded.messages.num_rows, dtype=bool)
        subjects = decoded.messages.column("subject").to_pylist()
        for row, subject in enumerate(subjects):
            if not 0 < decoded.counts[row] <= FRAME_POINTS_MAX or self._bytes > ASIDE_BYTES_MAX:
                continue
            leaf = leaf_of(subject)
            if leaf.kind is POINT and leaf.frame:
                body = decoded.messages.column("body")[row].as_py()
                marked[row] = len(body) <= FRAME_BYTES_MAX and is_said_again(body)
        return marked[decoded.message]

    def _late(self, points: pa.RecordBatch, again: Flags) -> Flags:
        """Return which points are the first of readings that points holds already."""
        alone = pc.equal(points.column("letter"), LETTER).to_numpy(zero_copy_only=False)
        there = np.isin(points.column("time_ns").to_numpy(), self._times)
        rows = np.flatnonzero(alone & ~again & there)
        late = np.zeros(points.num_rows, dtype=bool)
        found = digests(points.take(pa.array(rows)))
        late[rows] = [each in self._standing for each in found]
        return late

    def report(self) -> list[str]:
        """Return the readings put aside as text, for the task's report."""
        return [base64.b64encode(packed(table)).decode() for table in self._tables]


def _plain(points: pa.RecordBatch) -> pa.Table:
    columns = [points.column(field.name).cast(field.type) for field in POINTS]
    return pa.Table.from_arrays(columns, schema=POINTS)


def reported(texts: Iterable[str], repeats: Mapping[str, pa.Array]) -> pa.Table:
    """Return the readings that tasks put aside (`Aside.report`), each once, without messages that points holds already.

    `repeats`: per stream, the sequences of such messages.
    """
    tables = [unpacked(base64.b64decode(text)) for text in texts]
    table = pa.concat_tables([POINTS.empty_table(), *tables])
    for stream, seqs in repeats.items():
        inside = pc.is_in(table.column("stream_seq"), value_set=seqs)
        table = table.filter(pc.invert(pc.and_(pc.equal(table.column("stream"), stream), inside)))
    return _firsts(table, set())


def not_there(
    again: pa.Table, points: ds.Dataset, uri: str, files: Sequence[dict[str, Any]]
) -> pa.Table:
    """Return those of repeated readings (`reported`) that are neither in points nor in files to be committed.

    `points` is the table without these files, which are as PartFile.close described them.
    """
    days = set(pc.floor_temporal(again.column("time"), unit="day").cast(pa.date32()).to_pylist())
    days.add(TIMELESS.item())  # a head has lost the word that its clock was not set
    wanted = pc.field("letter") == LETTER
    wanted &= pc.field("device").isin(pc.unique(again.column("device")))
    wanted &= pc.field("time_ns").isin(pc.unique(again.column("time_ns")))
    found = set(digests(points.to_table(list(SAME), filter=wanted & pc.field("date").isin(days))))
    names = set(map(str, days))
    for file in files:
        if file["partition"]["date"] in names:
            with open_input(uri, file["path"]) as source:
                found.update(*map(digests, on_live(source, again.column("time_ns"))))
    return _firsts(again, found)


def on_live(source: Any, times: pa.ChunkedArray | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of letter `p` of a file of points, of some times alone or of all."""
    for batch in read_batches(source):
        wanted = pc.equal(batch.column("letter").cast(pa.string()), LETTER)
        if times is not None:
            wanted = pc.and_(wanted, pc.is_in(batch.column("time_ns"), value_set=times))
        yield batch.filter(wanted)


def _firsts(table: pa.Table, known: set[bytes]) -> pa.Table:
    known = set(known)
    rows = []
    for row, each in enumerate(digests(table)):
        if each not in known:
            known.add(each)
            rows.append(row)
    return table.take(pa.array(rows, pa.int64()))


def notes(added: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of `said_again` for readings that were added to points."""
    places = added.select(["device", "time_ns", "stream", "stream_seq", "index"]).to_pylist()
    return [
        place | {"digest": each.hex()} for place, each in zip(places, digests(added), strict=True)
    ]


def standing(noted: ds.Dataset) -> dict[Note, None]:
    """Return the newest notes of the table, the newest last."""
    held: list[pa.Table] = []
    for batch in noted.to_batches(columns=["time_ns", "digest", "ingest"]):
        held.append(pa.Table.from_batches([batch]))
        if sum(part.num_rows for part in held) > 4 * NOTES_MAX:
            held = [_newest(held)]
    if not held:
        return {}
    newest = _newest(held)
    digests_ = map(bytes.fromhex, newest.column("digest").to_pylist())
    return dict.fromkeys(zip(newest.column("time_ns").to_pylist(), digests_, strict=True))


def _newest(parts: list[pa.Table]) -> pa.Table:
    rows = pa.concat_tables(parts).sort_by("ingest")
    return rows.slice(max(0, rows.num_rows - NOTES_MAX))


def note_added(known: dict[Note, None], added: pa.Table) -> None:
    """Take in readings that were added to points; the oldest notes make room for the newest."""
    for note in zip(added.column("time_ns").to_pylist(), digests(added), strict=True):
        known.pop(note, None)
        known[note] = None
    for note in list(known)[: max(0, len(known) - NOTES_MAX)]:
        del known[note]

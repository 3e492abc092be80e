"""Which messages the points table holds, and so which ones of a batch are new. Driver side.

A message is known for ever by (device, lane, epoch, seq). A lane that lost nothing is one range,
so what is remembered grows with the number of lanes and holes, not with time. The tables carry
the same ranges, written before the points they speak of and true once those are committed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from backhaul_codec.ranges import RangeSet
from backhaul_spark.arrays import Flags, Ints
from backhaul_spark.decode.chained import AGAIN, FIRST, known, packed, parted, same_lane
from backhaul_spark.tables.schemas import COVERAGE_TABLE


class LaneKey(NamedTuple):
    """One lane of one device in one incarnation of its ledger."""

    device: str
    lane: str
    epoch: int


@dataclass(slots=True)
class Decision:
    """The new part of a batch.

    `rows`: the ranges that are new, as the coverage table wants them but for `ingest`. `repeats`:
    per stream, the sequences of messages that are held already, or come a second time in the
    batch. `hashes`: as the table of that name wants them but for `ingest` and `date`, of what is new
    and of repeats. `messages` and `points` count what is new.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    repeats: dict[str, pa.Array] = field(default_factory=dict)
    hashes: list[dict[str, Any]] = field(default_factory=list)
    messages: int = 0
    points: int = 0
    repeated: int = 0


class Coverage:
    """The messages that are held, per lane."""

    def __init__(self) -> None:
        self.lanes: dict[LaneKey, RangeSet] = {}

    @classmethod
    def from_table(cls, rows: pa.Table) -> Coverage:
        """Build it from rows of the coverage table."""
        coverage = cls()
        rows = rows.sort_by([("device", "ascending"), ("lo", "ascending")])
        columns = [
            rows.column(name).to_pylist() for name in ("device", "lane", "epoch", "lo", "hi")
        ]
        for device, lane, epoch, lo, hi in zip(*columns, strict=True):
            coverage._lane(LaneKey(device, lane, epoch)).add(lo, hi)
        return coverage

    def decide(self, messages: pa.Table) -> Decision:
        """Tell new messages from repeats, and hold the new ones from now on.

        Of several messages with one identity the first in (stream, stream_seq) wins. The answer
        depends on the coverage and the batch alone, so a batch that is done again is decided the
        same way. When the commit that follows fails, this object is wrong: build it anew.

        Args:
            messages: schema MESSAGE_FACTS, in any order, only messages that could be read.
        """
        decision = Decision()
        if not messages.num_rows:
            return decision
        batch = _Sorted(messages)
        repeated = ~batch.first
        starts = np.flatnonzero(batch.first & batch.begins_range)
        for start in starts.tolist():
            self._take(batch, start, repeated, decision)
        for rows in batch.runs(np.flatnonzero(repeated)):
            _note_hashes(batch, rows, decision, again=True)
        decision.repeated = int(np.count_nonzero(repeated))
        decision.messages = messages.num_rows - decision.repeated
        decision.points = int(batch.points[~repeated].sum())
        for stream in np.unique(batch.streams[repeated]).tolist():
            here = repeated & (batch.streams == stream)
            decision.repeats[batch.stream_names[stream]] = pa.array(batch.stream_seqs[here])
        return decision

    def _take(self, batch: _Sorted, start: int, repeated: Flags, decision: Decision) -> None:
        rows = batch.range_rows(start)
        lo, hi = int(batch.seqs[rows[0]]), int(batch.seqs[rows[-1]])
        key = batch.key(start)
        lane = self._lane(key)
        fresh = [(lo, hi)] if lo > lane.highest else lane.holes(lo, hi)
        held = np.ones(len(rows), dtype=bool)
        for low, high in fresh:
            held[low - lo : high - lo + 1] = False
            these = rows[low - lo : high - lo + 1]
            points = int(batch.points[these].sum())
            ends = {"link": int(batch.links[these[0]]), "hash": int(batch.hashes[these[-1]])}
            place = {**key._asdict(), "lo": low, "hi": high}
            decision.rows.append(place | {"points": points} | ends)
            _note_hashes(batch, these, decision, again=False)
        repeated[rows[held]] = True
        lane.add(lo, hi)

    def _lane(self, key: LaneKey) -> RangeSet:
        lane = self.lanes.get(key)
        if lane is None:
            lane = self.lanes[key] = RangeSet()
        return lane


class _Sorted:
    """A batch's messages by lane, sequence and order of arrival, as arrays."""

    def __init__(self, messages: pa.Table) -> None:
        def codes(name: str) -> tuple[Ints, list[str]]:
            column = messages.column(name).combine_chunks().dictionary_encode()
            names = column.dictionary.to_pylist()
            # Codes in the order of names: which of two repeats wins must not hang on read order.
            rank = np.argsort(np.argsort(np.asarray(names, dtype=object)))
            return rank[column.indices.to_numpy()], sorted(names)

        devices, self._devices = codes("device")
        lanes, self._lanes = codes("lane")
        streams, self.stream_names = codes("stream")
        epochs, seqs, stream_seqs, points = (
            messages.column(name).to_numpy() for name in ("epoch", "seq", "stream_seq", "points")
        )
        order = np.lexsort((stream_seqs, streams, seqs, epochs, lanes, devices))
        self._device, self._lane, self._epoch = devices[order], lanes[order], epochs[order]
        self.seqs, self.streams = seqs[order], streams[order]
        self.stream_seqs, self.points = stream_seqs[order], points[order]
        self.links, self.hashes = (known(messages, name)[order] for name in ("link", "hash"))
        new_lane = np.ones(len(order), dtype=bool)
        new_lane[1:] = (
            (np.diff(self._device) != 0) | (np.diff(self._lane) != 0) | (np.diff(self._epoch) != 0)
        )
        step = np.ones(len(order), dtype=np.int64)
        step[1:] = np.diff(self.seqs)
        #: the first message of its identity
        self.first = new_lane | (step != 0)
        self._new_lane = new_lane
        self._firsts = np.flatnonzero(self.first)
        #: not the successor of the message before it (repeats in between do not count), or not by its link
        self.begins_range = new_lane | (step > 1)
        self.begins_range[self._firsts[1:]] |= parted(
            self.hashes[self._firsts[:-1]], self.links[self._firsts[1:]]
        )
        self._range_starts = np.flatnonzero(self.begins_range[self._firsts])

    def range_rows(self, start: int) -> Ints:
        """Return the rows, one a sequence, of the unbroken range that begins at row `start`."""
        position = int(np.searchsorted(self._firsts, start))
        index = int(np.searchsorted(self._range_starts, position))
        after = self._range_starts[index + 1] if index + 1 < len(self._range_starts) else None
        return self._firsts[position:after]

    def runs(self, rows: Ints) -> list[Ints]:
        """Cut rows, ascending, where a lane, a run of sequences, or a chain of links ends."""
        if not len(rows):
            return []
        lanes = np.cumsum(self._new_lane)[rows]
        ends = (np.diff(lanes) != 0) | (np.diff(self.seqs[rows]) != 1)
        # Of version 1 nothing is compared: one row is enough.
        ends |= (self.hashes[rows[1:]] != 0) & (self.links[rows[1:]] != self.hashes[rows[:-1]])
        return np.split(rows, np.flatnonzero(ends) + 1)

    def key(self, row: int) -> LaneKey:
        """Return the lane of a row."""
        return LaneKey(
            self._devices[self._device[row]],
            self._lanes[self._lane[row]],
            int(self._epoch[row]),
        )


def _note_hashes(batch: _Sorted, rows: Ints, decision: Decision, *, again: bool) -> None:
    """Note the hashes of an unbroken run; messages of version 1 have none."""
    hashes, first = batch.hashes[rows], int(rows[0])
    if hashes.any():
        place = {**batch.key(first)._asdict(), "lo": int(batch.seqs[first])}
        place |= {"hi": int(batch.seqs[rows[-1]]), "came": AGAIN if again else FIRST}
        decision.hashes.append(place | {"hashes": packed(hashes), "link": int(batch.links[first])})


def merge_rows(rows: pa.Table) -> pa.Table:
    """Return the coverage rows with neighbouring ranges of a lane made one, points added up.

    Ranges of which it is known that they do not link stay apart.

    `ingest` becomes the highest of the merged ones. Ranges do not overlap: ingest sees to that.
    """
    rows = rows.combine_chunks().sort_by(
        [(name, "ascending") for name in ("device", "lane", "epoch", "lo")]
    )
    if rows.num_rows < 2:
        return rows
    begins = np.ones(rows.num_rows, dtype=bool)
    lo, hi = rows.column("lo").to_numpy(), rows.column("hi").to_numpy()
    links, hashes = known(rows, "link"), known(rows, "hash")
    begins[1:] = ~same_lane(rows) | (lo[1:] != hi[:-1] + 1) | parted(hashes[:-1], links[1:])
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], rows.num_rows) - 1
    merged = rows.take(pa.array(starts))
    columns = {
        "hi": hi[ends],
        "points": np.add.reduceat(rows.column("points").to_numpy(), starts),
        "ingest": np.maximum.reduceat(rows.column("ingest").to_numpy(), starts),
        "hash": hashes[ends],
    }
    for name, values in columns.items():
        position = merged.schema.get_field_index(name)
        merged = merged.set_column(position, COVERAGE_TABLE.schema.field(name), pa.array(values))
    return merged

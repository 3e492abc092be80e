"""Vehicles' words on their lanes and clocks: marks, receipts, epochs, clock qualities.

Pure: it is told in the order of UP, changes continuity, and hands out the rows to be stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec
import structlog

from backhaul_codec.assurance.completeness import HOUR_NS
from backhaul_codec.protocol.words import ClockWord, EpochWord, MarkWord, Receipt, Word, forked_by
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.db.change import RowChange

log = structlog.get_logger(__name__)

# A mark that claims to be from later than this after the hub stored it says nothing of its hour.
_FUTURE_NS_MAX = 5 * 1_000_000_000
MARKS_KEPT_NS = 35 * 24 * HOUR_NS
"""How long marks are kept: a little longer than UP keeps messages by default."""

_PUT_MARK = "INSERT OR REPLACE INTO mark VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
# Of an hour, only the first and the last mark say where it began and ended.
_THIN_MARKS = (
    "DELETE FROM mark WHERE device = ?1 AND epoch = ?2 AND hour = ?3 AND seq NOT IN ("
    "SELECT min(seq) FROM mark WHERE device = ?1 AND epoch = ?2 AND hour = ?3 UNION "
    "SELECT max(seq) FROM mark WHERE device = ?1 AND epoch = ?2 AND hour = ?3)"
)
_OLD_MARKS = "DELETE FROM mark WHERE device = ? AND hour < ?"
_PUT_EPOCH = "INSERT OR REPLACE INTO ended_epoch VALUES (?, ?, ?, ?, ?, ?, ?)"
_OLD_EPOCHS = "DELETE FROM ended_epoch WHERE device = ? AND stored_ns < ?"
_PUT_CLOCK = "INSERT OR REPLACE INTO vehicle_clock VALUES (?, ?, ?, ?, ?, ?)"


class WordBook:
    """Takes in the words of all vehicles."""

    def __init__(self, continuity: Continuity) -> None:
        self.clocks: dict[str, ClockWord] = {}
        """By device: what it said last of its clock."""
        self.counted: Counter[str] = Counter()
        """By device: how many marks, and words that an epoch is over, it has said since the start."""
        self._continuity = continuity
        self._marks: list[tuple[Any, ...]] = []
        self._epochs: list[tuple[Any, ...]] = []
        self._clocks: list[tuple[Any, ...]] = []

    def restore(
        self, ended: Iterable[tuple[str, int]], clocks: Iterable[tuple[str, ClockWord]]
    ) -> None:
        """Take in the stored rows: epochs that are over, and the clocks of devices."""
        for device, epoch in ended:
            self._continuity.end(device, epoch)
        self.clocks.update(clocks)

    def take(self, key: LaneKey, seq: int, word: Word, stored_ns: int) -> None:
        """Take in one word, said in the message at `key` and `seq`; repeats change nothing.

        `stored_ns`: when UP stored that message.
        """
        match word:
            case Receipt():
                self._explain(key.device, word)
            case MarkWord():
                self._mark(key, seq, word, stored_ns)
            case EpochWord():
                self._end(key.device, word, stored_ns)
            case ClockWord():
                self._clock(key.device, word)

    def take_changes(self) -> list[RowChange]:
        """Return the rows to be stored."""
        marks, self._marks = self._marks, []
        epochs, self._epochs = self._epochs, []
        clocks, self._clocks = self._clocks, []
        # (device, epoch, hour) of each mark, and what is too old beside it.
        hours = {(row[0], row[1], row[3]) for row in marks}
        oldest = {row[0]: row[4] - MARKS_KEPT_NS for row in marks}
        return [
            RowChange(_PUT_MARK, marks),
            RowChange(_THIN_MARKS, sorted(hours)),
            RowChange(_OLD_MARKS, [(device, ns // HOUR_NS) for device, ns in oldest.items()]),
            RowChange(_PUT_EPOCH, epochs),
            RowChange(_OLD_EPOCHS, [(row[0], row[6] - MARKS_KEPT_NS) for row in epochs]),
            RowChange(_PUT_CLOCK, clocks),
        ]

    def _explain(self, device: str, word: Receipt) -> None:
        key = LaneKey(device, word.lane, word.epoch)
        log.warning(
            "receipt",
            device=device,
            lane=word.lane,
            epoch=word.epoch,
            low=word.low,
            high=word.high,
            reason=word.reason,
        )
        if not self._continuity.explain(key, word.low, word.high, word.reason, word.chain):
            log.error("device_beyond_bounds", device=device, bound="receipts")

    def _mark(self, key: LaneKey, seq: int, word: MarkWord, stored_ns: int) -> None:
        for lane, last in word.lanes.items():
            self._continuity.say(LaneKey(key.device, lane, word.epoch), last)
        if not stored_ns - MARKS_KEPT_NS <= word.time_ns <= stored_ns + _FUTURE_NS_MAX:
            log.warning("mark_of_no_believable_time", device=key.device, time_ns=word.time_ns)
            return
        lanes, chain = (msgspec.json.encode(each).decode() for each in (word.lanes, word.chain))
        row = (key.device, word.epoch, seq, word.time_ns // HOUR_NS, word.time_ns)
        self.counted[key.device] += 1
        self._marks.append((*row, lanes, word.why, chain))

    def _end(self, device: str, word: EpochWord, stored_ns: int) -> None:
        log.warning("ledger_replaced", device=device, old=word.old, new=word.new, why=word.why)
        if not self._continuity.end(device, word.old):
            log.error("device_beyond_bounds", device=device, bound="ended")
            return
        for lane, last in word.lanes.items():
            self._continuity.say(LaneKey(device, lane, word.old), last)
        known = {each.epoch for each in self._continuity.of_device(device)}
        for epoch in forked_by(word.old, word.why, known):
            for lane in word.lanes:
                # What is held may all be one machine's: the other one's messages were never sent.
                self._continuity.fork(LaneKey(device, lane, epoch))
        lanes = msgspec.json.encode(word.lanes).decode()
        row = (device, word.old, word.new, word.time_ns, word.why, lanes, stored_ns)
        self.counted[device] += 1
        self._epochs.append(row)

    def _clock(self, device: str, word: ClockWord) -> None:
        known = self.clocks.get(device)
        if known is not None and known.time_ns > word.time_ns:
            return
        self.clocks[device] = word
        self._clocks.append(
            (device, word.time_ns, word.quality, word.offset_ns, word.error_ns, str(word.boot))
        )

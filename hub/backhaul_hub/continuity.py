"""Continuity: which messages of a lane the hub holds, what is missing, how far nothing is.

Pure and synchronous. It is told what arrived in UP, in whatever order, repeats included, and
answers what is new. A source that reports lag 0 proves nothing (a leaf store that lost its tail
reuses sequence numbers); the seqs that the ledger wrote into every message do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from backhaul_codec.ranges import RangeSet

if TYPE_CHECKING:
    from collections.abc import Mapping


class LaneKey(NamedTuple):
    """One lane of one device in one incarnation of its ledger."""

    device: str
    lane: str
    epoch: int


@dataclass(slots=True)
class LaneState:
    """What the hub knows of one (device, lane, epoch)."""

    held: RangeSet = field(default_factory=RangeSet)
    """Seqs that are in UP."""
    explained: RangeSet = field(default_factory=RangeSet)
    """Seqs that will never come, by a receipt from the device."""
    messages: int = 0
    """Messages that were new."""
    repeats: int = 0
    """Messages whose seq was held already."""
    body_bytes: int = 0
    """Size of the new messages as they came over the wire, without subject and headers."""
    last_seen_ns: int = 0
    """When UP stored the newest of them; ns since the Unix epoch."""

    @property
    def accounted(self) -> RangeSet:
        """Seqs that are held or explained."""
        return self.held.union(self.explained) if self.explained else self.held

    @property
    def watermark(self) -> int:
        """The highest seq below which everything is held or explained."""
        return self.accounted.contiguous

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Ranges below the newest seq that are neither held nor explained."""
        return self.accounted.holes()


class Continuity:
    """Continuity of every lane that sends to this hub."""

    def __init__(self) -> None:
        self.lanes: dict[LaneKey, LaneState] = {}
        self._newest: dict[str, dict[str, LaneKey]] = {}
        self._changed: set[LaneKey] = set()

    def restore(self, lanes: Mapping[LaneKey, LaneState]) -> None:
        """Take in what was stored before."""
        for key, state in lanes.items():
            self.lanes[key] = state
            self._heard(key, state)

    def arrived(self, key: LaneKey, seq: int, body_bytes: int, stored_ns: int) -> bool:
        """Take in one message; return whether it is new (False: a repeat)."""
        state = self._state(key)
        self._changed.add(key)
        state.last_seen_ns = max(state.last_seen_ns, stored_ns)
        self._heard(key, state)
        if not state.held.add(seq):
            state.repeats += 1
            return False
        state.messages += 1
        state.body_bytes += body_bytes
        return True

    def explain(self, key: LaneKey, low: int, high: int) -> None:
        """Take in a receipt: `low..high` will never come.

        Raises:
            ValueError: where `low..high` is no range of seqs.
        """
        self._state(key).explained.add(low, high)
        self._changed.add(key)

    def take_changed(self) -> dict[LaneKey, LaneState]:
        """Return the lanes that changed since the last call, to be stored."""
        changed = {key: self.lanes[key] for key in self._changed}
        self._changed.clear()
        return changed

    def current(self, device: str) -> dict[str, tuple[int, LaneState]]:
        """Return the newest epoch of each lane of a device: lane to (epoch, state).

        Epochs are random, so the newest is the one that was heard from last.
        """
        newest = self._newest.get(device, {})
        return {lane: (key.epoch, self.lanes[key]) for lane, key in newest.items()}

    def _heard(self, key: LaneKey, state: LaneState) -> None:
        lanes = self._newest.setdefault(key.device, {})
        known = lanes.get(key.lane)
        if known is None or state.last_seen_ns >= self.lanes[known].last_seen_ns:
            lanes[key.lane] = key

    def _state(self, key: LaneKey) -> LaneState:
        state = self.lanes.get(key)
        if state is None:
            state = self.lanes[key] = LaneState()
        return state

"""The word on a command: its vehicle's, or the hub's own, which counts least. Pure.

What the hub called expired, having heard nothing, becomes what the vehicle says of it later. And where
the vehicle's ledger is another since, whose word on it may be lost, it becomes interrupted.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from backhaul_codec import Opaque
from backhaul_codec.points import JSON
from backhaul_codec.strict.json import Reader

if TYPE_CHECKING:
    from backhaul_codec import Point

UNHEARD = "no word from the vehicle by its deadline"
"""Why the hub calls a command expired that the vehicle may have got."""
AWAY = "the vehicle was not connected before its deadline"
"""Why it does where the vehicle cannot have got it."""
_STARTED_LATE = "started, as the hub heard after it had given it up; no end is heard yet"
NOTHING = "{}"


class State(StrEnum):
    """Where a command stands."""

    QUEUED = "queued"
    SENT = "sent"
    ACCEPTED = "accepted"
    EXPIRED = "expired"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    DONE = "done"

    @property
    def over(self) -> bool:
        """Tell whether it is an end."""
        return self in _ENDS


_ENDS = frozenset({State.EXPIRED, State.INTERRUPTED, State.FAILED, State.DONE})
# The hub's guess is less than the vehicle's word; but once the vehicle has another ledger, that doubt is
# more than an `expired`, which this ledger cannot know. Failed or done, it has ended: the first word stands.
_RANKS = {
    State.QUEUED: 0, State.SENT: 1, State.ACCEPTED: 2,
    State.EXPIRED: 5, State.INTERRUPTED: 7, State.FAILED: 8, State.DONE: 8,
}  # fmt: skip
_HUBS_RANKS = {State.EXPIRED: 3, State.INTERRUPTED: 4}
DOUBT_RANK = 6


def rank_of(state: State, said: str) -> int:
    """Return how much a word on a command tells: a number that only ever grows in its life.

    Args:
        state: what it says.
        said: as `Command.said`, which tells whose word it is.
    """
    found = json.loads(said)
    if state is State.INTERRUPTED and "epoch" in found:
        return DOUBT_RANK
    return (_HUBS_RANKS if found.get("by") == "hub" else {}).get(state, _RANKS[state])


_EVER_NS = (1 << 63) - 1


class Doubt(NamedTuple):
    """An epoch of a vehicle began: its ledger may lack commands that the former one knew.

    Nobody can tell from the hub whether anything was lost with that. The vehicle itself says the same
    of what it gets again.
    """

    device: str
    epoch: int
    until_ns: int = _EVER_NS
    """What was queued later was sent to the new ledger: the hub may read of the epoch long after it began."""

    @property
    def said(self) -> str:
        """Return the hub's word on a command of which nothing is heard: JSON, as `Command.said`."""
        error = f"{UNHEARD}, whose ledger began anew since it was sent: it may have run"
        return msgspec.json.encode({"error": error, "by": "hub", "epoch": self.epoch}).decode()


class Heard(NamedTuple):
    """The word of a vehicle on a command, on `r.<id>`."""

    state: State
    time_ns: int
    said: str

    @property
    def rank(self) -> int:
        """Return how much it tells (`rank_of`)."""
        return rank_of(self.state, self.said)


class _Said(msgspec.Struct, frozen=True):
    """The JSON of a result, as far as the hub reads it."""

    state: str
    result: msgspec.Raw = msgspec.Raw(b"")
    error: str = ""
    runs: int = 0


_read_said = Reader(_Said).read
_VEHICLE_STATES = frozenset(State) - {State.QUEUED, State.SENT}


def read_result(point: Point) -> Heard:
    """Read a vehicle's word on a command. Raises: ValueError: it is no such thing."""
    if not isinstance(point.value, Opaque) or point.value.dtype != JSON:
        raise ValueError("a result is JSON")
    said = _read_said(point.value.data)
    if said.state not in _VEHICLE_STATES:
        raise ValueError(f"{said.state[:40]!r} is no state of a command")
    kept: dict[str, Any] = {"runs": said.runs}
    if bytes(said.result):
        kept["result"] = said.result
    if said.error:
        kept["error"] = said.error
    # Above 0, which says "not yet" in a row, whatever the vehicle's clock is.
    return Heard(State(said.state), max(1, point.time), msgspec.json.encode(kept).decode())


def late(heard: Heard) -> Heard:
    """Return a vehicle's word as it counts for a command that was over for the hub.

    One that was started has not expired, as far as is known; its end comes, unless the ledger that is to
    tell it is lost. It may be that it did: the deadline passed while the start was written down.
    """
    if heard.state is not State.ACCEPTED:
        return heard
    return Heard(State.INTERRUPTED, heard.time_ns, by_hub(_STARTED_LATE))


def by_hub(error: str) -> str:
    """Return the hub's own word on a command, as `Command.said`."""
    return msgspec.json.encode({"error": error, "by": "hub"}).decode()

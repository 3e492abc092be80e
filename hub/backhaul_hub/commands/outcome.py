"""The word on a command: its vehicle's, or the hub's own, which counts least. Pure.

What the hub called expired, having heard nothing, becomes what the vehicle says of it later. And where
the vehicle's ledger is another since, whose word on it may be lost, it becomes interrupted.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from backhaul_codec import Opaque, Point
from backhaul_codec.points import JSON
from backhaul_codec.protocol.command_errors import ErrorCode, code_of_older_words
from backhaul_codec.strict.json import Reader

TEXTS = {
    ErrorCode.REFUSED: "not sent: {why}",
    # The vehicle may have got it.
    ErrorCode.UNHEARD: "no word from the vehicle by its deadline",
    # The vehicle cannot have got it.
    ErrorCode.AWAY: "the vehicle was not connected before its deadline",
    ErrorCode.NEW_LEDGER: (
        "no word from the vehicle by its deadline, whose ledger began anew since it was sent: "
        "it may have run"
    ),
    ErrorCode.STARTED_LATE: (
        "started, as the hub heard after it had given it up; no end is heard yet"
    ),
    ErrorCode.NO_RESULT: "started, and no result ever since",
    ErrorCode.RESULT_TOO_LARGE: "the result is too large to be told",
}
"""The hub's sentences for people: nothing hangs on their words."""


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


class By(StrEnum):
    """The speaker of a word on a command."""

    NOBODY = ""
    VEHICLE = "vehicle"
    HUB = "hub"


class Outcome(NamedTuple):
    """A word on a command. `error` is for people, `result` JSON or empty, `runs` counts its starts.

    `doubt`: the epoch of the vehicle since which nobody knows whether it ran; 0 where there is none.
    """

    by: By = By.NOBODY
    code: ErrorCode = ErrorCode.NONE
    error: str = ""
    result: str = ""
    runs: int = 0
    doubt: int = 0

    @classmethod
    def by_hub(cls, code: ErrorCode, *, doubt: int = 0, why: object = "") -> Outcome:
        """Return the hub's own word."""
        return cls(By.HUB, code, TEXTS[code].format(why=why), doubt=doubt)

    def rank(self, state: State) -> int:
        """Return how much it tells, with the state it speaks of: a number that only grows in a command's life."""
        if state is State.INTERRUPTED and self.doubt:
            return DOUBT_RANK
        return (_HUBS_RANKS if self.by is By.HUB else {}).get(state, _RANKS[state])

    def told(self) -> dict[str, Any]:
        """Return it as operators and programs see it."""
        found: dict[str, Any] = {"runs": self.runs} if self.by is By.VEHICLE else {}
        if self.result:
            found["result"] = json.loads(self.result)
        if self.error:
            found |= {"error": self.error, "code": self.code.value}
        if self.by is By.HUB:
            found["by"] = self.by.value
        return found | ({"epoch": self.doubt} if self.doubt else {})


NOTHING = Outcome()
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
    def outcome(self) -> Outcome:
        """Return the hub's word on a command of which nothing is heard."""
        return Outcome.by_hub(ErrorCode.NEW_LEDGER, doubt=self.epoch)


class Heard(NamedTuple):
    """The word of a vehicle on a command, on `r.<id>`."""

    state: State
    time_ns: int
    outcome: Outcome

    @property
    def rank(self) -> int:
        """Return how much it tells (`Outcome.rank`)."""
        return self.outcome.rank(self.state)


class _Said(msgspec.Struct, frozen=True):
    """The JSON of a result, as far as the hub reads it."""

    state: str
    result: msgspec.Raw = msgspec.Raw(b"")
    error: str = ""
    code: str = ""
    runs: int = 0


_read_said = Reader(_Said).read
_RUNS_MAX = (1 << 63) - 1  # which a column holds
_VEHICLE_STATES = frozenset(State) - {State.QUEUED, State.SENT}


def read_result(point: Point) -> Heard:
    """Read a vehicle's word on a command. Raises: ValueError: it is no such thing."""
    if not isinstance(point.value, Opaque) or point.value.dtype != JSON:
        raise ValueError("a result is JSON")
    said = _read_said(point.value.data)
    if said.state not in _VEHICLE_STATES:
        raise ValueError(f"{said.state[:40]!r} is no state of a command")
    code = ErrorCode(said.code) if said.code else code_of_older_words(said.state, said.error)
    runs = min(max(said.runs, 0), _RUNS_MAX)
    outcome = Outcome(By.VEHICLE, code, said.error, bytes(said.result).decode(), runs)
    # Above 0, which says "not yet" in a row, whatever the vehicle's clock is.
    return Heard(State(said.state), max(1, point.time), outcome)


def late(heard: Heard) -> Heard:
    """Return a vehicle's word as it counts for a command that was over for the hub.

    One that was started has not expired, as far as is known; its end comes, unless the ledger that is to
    tell it is lost. It may be that it did: the deadline passed while the start was written down.
    """
    if heard.state is not State.ACCEPTED:
        return heard
    return Heard(State.INTERRUPTED, heard.time_ns, Outcome.by_hub(ErrorCode.STARTED_LATE))

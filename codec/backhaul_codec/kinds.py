"""The kinds of messages: how each is named, in which lane it goes, its worth, and its receivers. Pure.

Every other module compares kinds, and no letters. A new kind is a row here, by which `subjects.parse_leaf`
reads it, and a receiver at the hub or on the vehicle.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, TypeAlias

# "live", "bulk", or "n_" and the token of a node that has a lane of its own.
Lane: TypeAlias = str
LIVE, BULK = "live", "bulk"
SHARED_LANES = (LIVE, BULK)  # that every device has


class Worth(IntEnum):
    """The worth of a message when the ledger runs out of room: the cheapest goes first."""

    TELEMETRY = 0
    STATE = 1
    CONFIG = 2
    EVENT = 3
    ACCOUNT = 4
    """It says how to read all others; the agent never evicts it."""


class MessageKind(NamedTuple):
    """One kind of message that vehicles send."""

    letter: str
    """In the column `letter` of the table points."""
    prefix: str
    """The first tokens of its subject, behind `n.<node>.` in a node's own lane."""
    names: tuple[str, ...]
    """The names behind the prefix, as fields of `subjects.Uplink`: all ways in which its subjects go on."""
    lane: Lane
    """Where its node has no lane of its own."""
    worth: Worth
    receivers: tuple[str, ...]
    """The rooms that take it in, beside continuity and the table points."""
    stamped: bool = False
    """Whether the agent itself stamps it: while it does not know the time, such a message waits for that."""

    @property
    def first(self) -> str:
        """Return the first token of its subjects."""
        return self.prefix.partition(".")[0]

    @property
    def stored(self) -> str:
        """Return the subject by which a stream takes it in: of all kinds with the same first token."""
        return f"{self.first}.>" if any(self.names) else self.first


FRAME = MessageKind("f", "f", ("node",), BULK, Worth.TELEMETRY, ("hub/sync", "spark/rules"))
BUNDLE = MessageKind("f", "b", ("",), BULK, Worth.TELEMETRY, ("hub/sync", "spark/rules"))
"""Telemetry of all nodes that share the lane: its rows are those of frames, so it has their letter."""
DICTIONARY = MessageKind("d", "d", ("key",), BULK, Worth.ACCOUNT, ("hub/uplink",))
"""Bytes that later bundles are packed against; no history has any row of it."""
POINT = MessageKind(
    *("p", "p", ("node", "parent node", "node type key", "parent node type key")),
    *(LIVE, Worth.STATE, ("hub/sync", "spark/rules")),
)
"""Heads: one point, or points that hold or fall as one. Of an edge, and of several, they are worth CONFIG."""
SYSTEM = MessageKind(
    *(
        "e",
        "e",
        ("type",),
        LIVE,
        Worth.EVENT,
        ("hub/uplink", "hub/sync", "spark/completeness"),
        True,
    )
)
"""The agent's own events; SYSTEM_KINDS says more of some."""
REPORT = MessageKind(
    "a", "e.app", ("type",), LIVE, Worth.EVENT, ("hub/broadcast", "hub/twin"), True
)
"""Events that programs report: none of them can say anything in the agent's name."""
RESULT = MessageKind("r", "r", ("key",), LIVE, Worth.EVENT, ("hub/commands",), True)
KINDS = (FRAME, BUNDLE, DICTIONARY, POINT, SYSTEM, REPORT, RESULT)
BY_PREFIX = {kind.prefix: kind for kind in KINDS}
STAMPED = tuple({f"{kind.first}.": None for kind in KINDS if kind.stamped})
"""Beginnings of the subjects of all that the agent stamps itself."""


def stored_subjects(*lanes: Lane) -> list[str]:
    """Return the subjects that a vehicle's streams of these lanes store, each once."""
    return list(dict.fromkeys(kind.stored for lane in lanes for kind in KINDS if kind.lane == lane))


class SystemKind(NamedTuple):
    """One kind of the agent's own events."""

    worth: Worth = Worth.EVENT
    history: bool = False
    """Whether it stands in the table points: else vehicle and hub keep house with it, or it is told elsewhere."""


SYSTEM_KINDS = {
    "clock": SystemKind(Worth.ACCOUNT),
    "digest": SystemKind(),
    "epoch": SystemKind(Worth.ACCOUNT),
    "heads": SystemKind(),
    "import": SystemKind(),
    "key": SystemKind(),
    "mark": SystemKind(),
    "quarantined": SystemKind(Worth.ACCOUNT, history=True),
    "receipt": SystemKind(Worth.ACCOUNT, history=True),
    "seen": SystemKind(),
}
"""The others are worth EVENT and stand in the table."""


def system_kind(event: str) -> SystemKind:
    """Return the worth of an event of the agent's own, and whether history has it."""
    return SYSTEM_KINDS.get(event, SystemKind(history=True))

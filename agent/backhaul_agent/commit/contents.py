"""Contents of programs' publishes, as a commit keeps them, and the worth of each. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeAlias

from backhaul_agent.ledger.eviction_policy import ACCOUNT, STATE, TELEMETRY, class_of

if TYPE_CHECKING:
    from backhaul_agent.ledger.rows import Outgoing
    from backhaul_codec import Point
    from backhaul_codec.wire.addressed import Addressed
    from backhaul_codec.wire.split import Piece


class Points(NamedTuple):
    """Points of one node, as they came; ``live``: each becomes a message of its own.

    ``boot``: what their stamps wait for, 0 for nothing; ``clock``: how good the stamps are (0 synced,
    1 holdover, 2 unset). A tuple: there is one for every single reading, and a frozen dataclass takes
    three times as long to make.
    """

    node: str
    points: Sequence[Point]
    live: bool = False
    boot: int = 0
    clock: int = 0


@dataclass(frozen=True, slots=True)
class Frame:
    """A client's frame that is large enough to pass through as it is (already checked).

    ``rest``: of one that was too large, and came apart, what follows the first.
    """

    node: str
    body: bytes
    points: int
    times: tuple[int, int]  # of its earliest and latest point
    boot: int = 0
    rest: Sequence[Piece] = ()


@dataclass(frozen=True, slots=True)
class ConfigWrite:
    """Config written through the agent: its messages are ready, and these are the points in them."""

    messages: Sequence[Outgoing]
    addressed: Sequence[Addressed]

    @property
    def points(self) -> int:
        """Return how many points are written."""
        return len(self.addressed)


@dataclass(frozen=True, slots=True)
class Event:
    """An event that a program reported: its message is ready."""

    message: Outgoing
    points: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a recording: kept together, with the fact of how far the recording is kept.

    ``noted`` goes to the ledger's meta table, where ``expected`` must stand until then.
    """

    parts: Sequence[Points | Frame]
    points: int
    noted: dict[str, str | int]
    expected: dict[str, str | int | None]


Content: TypeAlias = "Points | Frame | ConfigWrite | Event | Rows"


def value_class(content: Content) -> int:
    """Return the value class of the dearest message that this becomes."""
    if isinstance(content, ConfigWrite):
        return worth(content.messages)
    if isinstance(content, Event):
        return worth([content.message])
    return STATE if isinstance(content, Points) and content.live else TELEMETRY


def worth(messages: Iterable[Outgoing]) -> int:
    """Return the class of the dearest message, receipts and their like not counted."""
    classes = [
        class_of(message.subject) if message.value_class is None else message.value_class
        for message in messages
    ]
    return max((found for found in classes if found < ACCOUNT), default=TELEMETRY)

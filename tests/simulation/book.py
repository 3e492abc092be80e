"""What is remembered of all machines of one identity, beside what they know themselves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.models import Message


@dataclass
class Book:
    """What is remembered of all machines of one identity, beside what they know themselves."""

    acknowledged: dict[int, Message] = field(default_factory=dict)
    """Point id to the message that carries it now, as it was acknowledged or moved."""
    uncertain: set[int] = field(default_factory=set)
    """Ids of which nobody may know: what held them was deleted, or put back by an older copy."""
    forgotten: set[bytes] = field(default_factory=set)
    """Hashes of messages that ledgers gave up after the hub had confirmed them."""
    moved: set[int] = field(default_factory=set)
    """Ids of points that were moved into another epoch."""
    by_data: dict[bytes, Message] = field(default_factory=dict)
    points: int = 0
    streams: int = 0
    pushed: set[bytes] = field(default_factory=set)
    """Hashes of messages that were pushed."""

"""Parts that may take part in a commit: each adds its writes, and is told how it went.

A commit goes through one turn. Every participant adds to one draft (`contribute`), in the order in
which the writer lists them, without a pause: nothing can come in between. Then the ledger writes the
draft in one transaction. Where it did, every participant takes over what follows from that
(`committed`), and only then those are told who wait for it (`Draft.on_durable`). Where the disk
refused, every participant takes back its share (`put_back`). One draft is on its way at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from backhaul_agent.commit.contents import Content
    from backhaul_agent.errors import RefusedError
    from backhaul_agent.ledger.rows import Inward, LedgerChanges, StagedRow
    from backhaul_codec import Point

AT_ONCE_S = float("-inf")
"""When that is due which waits for nothing, on the monotonic clock."""


@dataclass(slots=True)
class Draft:
    """One commit while its participants fill it.

    ``now_s``: monotonic. ``boot``: the one that stamps made now wait for, 0 for none. ``stopping``:
    whether it may be the last of this run. ``flush``: whether no point is to stay staged.

    ``cleared``: staged rows of the run before that may be framed. ``contents``: whatever programs
    published. ``received``: whatever follows from messages of the hub. ``staged_ids``: ids of the
    staged rows, once they are written. ``on_durable``: called in order once all of it is durable and
    taken over.
    """

    changes: LedgerChanges
    now_s: float
    boot: int = 0
    stopping: bool = False
    flush: bool = False
    cleared: list[tuple[StagedRow, list[Point]]] = field(default_factory=list)
    contents: list[Content] = field(default_factory=list)
    received: list[Inward] = field(default_factory=list)
    staged_ids: list[int] = field(default_factory=list)
    on_durable: list[Callable[[], None]] = field(default_factory=list)


class CommitParticipant(Protocol):
    """A part of the agent that writes with the commits. No method does I/O, or raises."""

    def due_s(self) -> float | None:
        """Return when a commit is due for this alone, on the monotonic clock; None: never by itself."""
        return None

    def must_by_s(self) -> float | None:
        """Return by when a commit must begin, even right after one that failed; None: it may wait."""
        return None

    def holds(self, now_s: float, *, pressed: bool) -> bool:
        """Whether this lets nothing be committed yet.

        ``now_s``: monotonic. ``pressed``: whether a commit must begin, by some participant's `must_by_s`.
        """
        return False

    def holds_until_s(self) -> float | None:
        """Return when this ends holding commits at the latest; None: with some news alone, or it holds none."""
        return None

    def close(self) -> None:
        """Take in nothing new from now on: the agent stops."""
        return  # nothing comes from outside

    def contribute(self, draft: Draft) -> None:
        """Add all due writes to the draft."""

    def committed(self, draft: Draft) -> None:
        """Take over the consequences: the draft is durable."""

    def put_back(self, refusal: RefusedError) -> None:
        """Take back the share in the last draft: the disk refused it, nothing of it was written.

        Programs are refused with ``refusal``. The agent's own share goes into the next draft.
        """
        return  # nothing was taken: it is contributed again

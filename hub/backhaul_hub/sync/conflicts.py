"""The conflict ledger: values that lost although their writer could not know of the winner. Pure.

Newest time wins, and mostly the loser was written in ignorance of nothing: its writer saw, or would
have seen, what replaced it. A real conflict is one where both ends wrote a series since they last
met. Its loser is kept here, and can be put back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from backhaul_codec.state.merge import Head, HeadKey
from backhaul_codec.wire.point_body import encode_value
from backhaul_hub.db.change import RowChange
from backhaul_hub.sync.heads import head_body, head_of, is_hub_origin

HUB_CLOCK = "synced"
REVERTED, ACCEPTED = "reverted", "accepted"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two values, and how good its writer's clock was."""

    head: Head
    clock: str
    """synced, holdover or unset; "unknown" where the device never said."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two writes of one series by ends that did not know of each other's."""

    id: int
    device: str
    key: HeadKey
    winner: Side
    loser: Side
    noticed_ns: int
    resolved_ns: int = 0
    """When somebody settled it; 0 where nobody has."""
    resolution: str = ""
    """`reverted` (the loser's value was written again) or `accepted`."""
    resolved_by: str = ""


def in_conflict(met: Head | None, mine: Head, *, heard_ns: int, seen_ns: int) -> bool:
    """Tell whether a vehicle's point and the head that it met were written in mutual ignorance.

    Args:
        met: the head before, None if there was none.
        mine: the vehicle's point.
        heard_ns: the newest stamp of this series from the vehicle before: what is not newer was
            known here, so whoever wrote `met` had it before their eyes.
        seen_ns: the newest stamp of the hub's that the vehicle had merged when it wrote.
    """
    return (
        met is not None
        and is_hub_origin(met.origin)
        and not is_hub_origin(mine.origin)
        and heard_ns < mine.time
        and seen_ns < met.time
        # Where both wrote the same, nobody has lost anything.
        and _says(met) != _says(mine)
    )


def _says(head: Head) -> tuple[bytes, bool]:
    return encode_value(head.value), head.deleted


class ConflictLedger:
    """The conflicts known, at most `rows_max`, and those of them that are not in hub.db yet.

    Room is made by the oldest that is settled, then by the oldest.
    """

    def __init__(self, rows_max: int) -> None:
        self._rows_max = rows_max
        self.conflicts: dict[int, Conflict] = {}
        """By id, oldest first."""
        self.dropped_resolved = 0
        self.dropped_unresolved = 0
        self._last_id = 0
        self._unstored: set[int] = set()
        self._gone: set[int] = set()

    def restore(self, conflicts: Iterable[Conflict], resolved: int, unresolved: int) -> None:
        """Take in the stored rows."""
        self.conflicts = {conflict.id: conflict for conflict in conflicts}
        self.dropped_resolved, self.dropped_unresolved = resolved, unresolved
        self._last_id = max(self.conflicts, default=0)

    def of(self, device: str | None = None) -> list[Conflict]:
        """Return the conflicts of one device, or of all, oldest first."""
        return [each for each in self.conflicts.values() if device in (None, each.device)]

    def open(self, device: str) -> int:
        """Count the conflicts of a device that nobody has settled."""
        return sum(not each.resolved_ns for each in self.of(device))

    def note(
        self, device: str, key: HeadKey, *, winner: Side, loser: Side, noticed_ns: int
    ) -> Conflict:
        """Keep a conflict."""
        self._last_id += 1
        conflict = Conflict(self._last_id, device, key, winner, loser, noticed_ns)
        self.conflicts[conflict.id] = conflict
        self._unstored.add(conflict.id)
        while len(self.conflicts) > self._rows_max:
            self._drop_one()
        return conflict

    def settled(self, conflict: Conflict, resolution: str, by: str, now_ns: int) -> Conflict:
        """Return a conflict as settled: to be stored, then taken in with `settle`."""
        return replace(conflict, resolved_ns=now_ns, resolution=resolution, resolved_by=by)

    def settle(self, conflict: Conflict) -> None:
        """Take in a conflict that was settled, and stored as such."""
        if conflict.id in self.conflicts:
            self.conflicts[conflict.id] = conflict

    def take_changes(self) -> list[RowChange]:
        """Return the rows to store since the last call."""
        unstored = [self.conflicts[id_] for id_ in sorted(self._unstored) if id_ in self.conflicts]
        gone = [(id_,) for id_ in sorted(self._gone)]
        changes = [insertion(unstored)] if unstored else []
        if gone:
            dropped = (self.dropped_resolved, self.dropped_unresolved)
            changes += [
                RowChange("DELETE FROM conflict WHERE id = ?", gone),
                RowChange("INSERT OR REPLACE INTO conflicts_dropped VALUES (0, ?, ?)", [dropped]),
            ]
        self._unstored, self._gone = set(), set()
        return changes

    def _drop_one(self) -> None:
        oldest = next((id_ for id_, each in self.conflicts.items() if each.resolved_ns), None)
        if oldest is None:
            oldest = next(iter(self.conflicts))
            self.dropped_unresolved += 1
        else:
            self.dropped_resolved += 1
        del self.conflicts[oldest]
        self._gone.add(oldest)


def insertion(conflicts: Iterable[Conflict]) -> RowChange:
    """Return the statement that stores conflicts, new or settled."""
    return RowChange(
        "INSERT OR REPLACE INTO conflict VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                each.id,
                each.device,
                *each.key,
                *(head_body(each.key, each.winner.head), each.winner.clock),
                *(head_body(each.key, each.loser.head), each.loser.clock),
                each.noticed_ns,
                *(each.resolved_ns, each.resolution, each.resolved_by),
            )
            for each in conflicts
        ],
    )


def conflict_of(row: Iterable[Any]) -> Conflict:
    """Read one row of table `conflict`. Raises: CodecError, for a row that this never wrote."""
    id_, device, parent, node, type_, key, winner, winner_clock, loser, loser_clock, *rest = row
    return Conflict(
        id_,
        device,
        HeadKey(parent, node, type_, key),
        Side(head_of(winner), winner_clock),
        Side(head_of(loser), loser_clock),
        *rest,
    )

"""Messages that the hub does not hold yet, by lane and by hour: a pure core, filled with sums over the ledger's rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

HOUR_NS = 3_600_000_000_000
HOURS_MAX = 24 * 92
"""The most hours that are told, the newest; one message of a recording may reach over years."""


class WaitingRows(NamedTuple):
    """Messages of a lane whose points reach from one hour into another, counted from 1970; None: no points.

    ``held``: whether they may not leave, because their stamps wait for the time.
    """

    first_hour: int | None
    last_hour: int | None
    held: bool
    messages: int
    size: int
    oldest_ns: int | None


class GivenUp(NamedTuple):
    """Messages of a lane that will never come, and the times between which their points lie, as far as known."""

    lane: str
    epoch: int
    lo: int
    hi: int
    reason: str
    after_ns: int | None = None
    before_ns: int | None = None


@dataclass(slots=True)
class _Sum:
    messages: int = 0
    size: int = 0
    held: int = 0
    oldest_ns: int | None = None

    def add(self, rows: WaitingRows) -> None:
        self.messages += rows.messages
        self.size += rows.size
        self.held += rows.messages if rows.held else 0
        times = [each for each in (self.oldest_ns, rows.oldest_ns) if each is not None]
        self.oldest_ns = min(times, default=None)

    def as_json(self) -> dict[str, Any]:
        return {
            "messages": self.messages,
            "bytes": self.size,
            "held_messages": self.held,
            "oldest_ns": self.oldest_ns,
        }


@dataclass(slots=True)
class WaitingSums:
    """Adds sums up. ``given_up``: messages that were evicted or quarantined, the newest last."""

    given_up: list[GivenUp] = field(default_factory=list)
    _lanes: dict[tuple[str, int], _Sum] = field(default_factory=dict)
    _hours: dict[int, _Sum] = field(default_factory=dict)

    def add(self, lane: str, epoch: int, found: Iterable[WaitingRows]) -> None:
        """Take in messages of a lane; a message counts in every hour that its points reach into."""
        total = self._lanes.setdefault((lane, epoch), _Sum())
        for rows in found:
            total.add(rows)
            if rows.first_hour is None or rows.last_hour is None:
                continue
            first = max(rows.first_hour, rows.last_hour - HOURS_MAX + 1)
            for hour in range(first, rows.last_hour + 1):
                self._hours.setdefault(hour, _Sum()).add(rows)

    def as_json(self) -> dict[str, Any]:
        """Return lanes, hours (the newest first) and messages that were given up, as JSON's values."""
        hours = sorted(self._hours, reverse=True)
        return {
            "lanes": [
                {"lane": lane, "epoch": epoch, **total.as_json()}
                for (lane, epoch), total in self._lanes.items()
            ],
            "hours": [
                {"from_ns": hour * HOUR_NS, **self._hours[hour].as_json()}
                for hour in hours[:HOURS_MAX]
            ],
            "hours_more": max(0, len(hours) - HOURS_MAX),
            "given_up": [each._asdict() for each in reversed(self.given_up)],
        }

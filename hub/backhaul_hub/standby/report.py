"""The machines of a hub as the one that leads knows them: the followers, their distances and faults. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from backhaul_codec.assurance.conditions import Finding, Place
from backhaul_hub.errors import HubError
from backhaul_hub.health import conditions as kinds

REPORTS = "journal.report"
"""Where machines that follow report, for whoever leads."""
_AWAY_S = 5.0
_BEHIND_MAX = 1_000


class FollowerReport(msgspec.Struct, frozen=True):
    """A machine's word on itself."""

    machine: str
    position: int
    """Up to where its hub.db holds the journal."""
    ready: bool = False
    """Whether it could lead: it holds all that it knows of."""
    why: str = ""
    """What keeps it from that; empty: nothing."""


class Followers:
    """The machines that follow.

    Args:
        others: the names that hub.toml has.
        now_s: when this begins, seconds of the monotonic clock.
    """

    def __init__(self, others: Sequence[str], now_s: float) -> None:
        self._heard: dict[str, tuple[FollowerReport | None, float]] = dict.fromkeys(
            others, (None, now_s)
        )

    def hear(self, report: FollowerReport, now_s: float) -> None:
        """Take in a report."""
        self._heard[report.machine] = (report, now_s)

    def to_lead(self, wanted: str, now_s: float) -> str:
        """Return the machine that can lead next: `wanted`, or any.

        Raises:
            HubError: none is ready, or that one is not.
        """
        ready = [
            name
            for name, (report, heard_s) in self._heard.items()
            if report is not None and report.ready and now_s - heard_s < _AWAY_S
        ]
        if wanted and wanted not in ready:
            raise HubError(f"{wanted} is not ready to lead", hint="see: backhaul-hub status")
        if not ready:
            raise HubError("no other machine is ready to lead", hint="see: backhaul-hub status")
        return wanted or ready[0]

    def rows(self, position: int, now_s: float) -> list[dict[str, Any]]:
        """Return each machine for `status`; `position`: the journal's last sequence."""
        return [
            {
                "machine": name,
                "heard_s": round(now_s - heard_s, 1) if report is not None else None,
                "behind": max(0, position - report.position) if report is not None else None,
                "ready": report is not None and report.ready and now_s - heard_s < _AWAY_S,
                "why": report.why if report is not None else "",
            }
            for name, (report, heard_s) in sorted(self._heard.items())
        ]

    def findings(self, position: int, now_s: float) -> Iterator[Finding]:
        """Yield the faults of machines that follow."""
        for name, (report, heard_s) in self._heard.items():
            place = Place(about=name)
            if report is None or now_s - heard_s >= _AWAY_S:
                yield Finding(kinds.STANDBY_AWAY, place)
            elif report.why:
                yield Finding(kinds.STANDBY_NOT_READY, place, report.why)
            elif (behind := position - report.position) > _BEHIND_MAX:
                yield Finding(kinds.STANDBY_NOT_READY, place, f"{behind:,} entries behind")

"""A vehicle's report on itself to the hub (`backhaul_codec.protocol.vehicle_report`), and when it is due.

Nothing is sent for it alone but where a condition begins or ends while the link is up: everything else goes
along with a question for the time that is asked anyway (`time_sync/exchange.py`).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from backhaul_agent.presence.machine import Machine
from backhaul_codec.assurance.conditions import Condition
from backhaul_codec.protocol.vehicle_report import (
    CONDITIONS_MAX,
    LINK_KINDS,
    PERCENT_MAX,
    VehicleReport,
    printable,
)
from backhaul_runtime.clock import Clock

CHANGES_S_MIN = 30.0
"""Between two questions that are asked for a change alone: conditions that come and go must not cost more."""

Codes = tuple[tuple[str, str], ...]


def disk_pct(place: Path) -> int | None:
    """Return how much of a directory's disk is taken, in percent, None where it cannot be seen."""
    try:
        found = shutil.disk_usage(place)
    except OSError:
        return None
    return 100 - 100 * found.free // max(1, found.used + found.free)


class SelfReport:
    """Makes reports, and knows the last one.

    Args:
        status: the agent's (status/status.py).
        shown: the vehicle's conditions, the worst first.
        disk_pct: how much of a directory's disk is taken, in percent; None where it cannot be seen.
    """

    def __init__(
        self,
        clock: Clock,
        machine: Machine,
        status: Callable[[], dict[str, Any]],
        shown: Callable[[], Sequence[Condition]],
        disk_pct: Callable[[Path], int | None] = disk_pct,
    ) -> None:
        self.machine = machine
        self._clock = clock
        self._version = version("backhaul")
        self._status = status
        self._shown = shown
        self._disk_pct = disk_pct
        self._said: Codes = ()
        self._changed_s: float | None = None

    def make(self) -> VehicleReport:
        """Return the report now; it is going out."""
        status = self._status()
        ledger = status["ledger"]
        self._said = self._codes()
        return VehicleReport(
            self.machine.machine,
            self.machine.boot,
            self.machine.run,
            self._version,
            ledger_pct=100 * ledger["bytes"] // max(1, ledger["bytes_max"]),
            disk_pct=self._disk_pct(Path(ledger["path"]).parent),
            budget_pct=_budget_pct(status["link"]["budget"]),
            conditions=self._said,
            link_kb=tuple(
                round(status["link"]["budget"]["month"]["kinds"][kind] / 1000)
                for kind in LINK_KINDS
            ),
        )

    def is_due(self, up: bool | None) -> bool:
        """Return whether to ask now for the sake of the report alone: a condition began or ended."""
        if not up or self._codes() == self._said:
            return False
        now_s = self._clock.monotonic_s()
        if self._changed_s is not None and now_s - self._changed_s < CHANGES_S_MIN:
            return False
        self._changed_s = now_s
        return True

    def _codes(self) -> Codes:
        found = ((each.code, printable(each.about)) for each in self._shown()[:CONDITIONS_MAX])
        return tuple(found)


def _budget_pct(budget: dict[str, Any]) -> int | None:
    """Return the used part of the day's or the month's budget, the larger one; None: there is none."""
    parts = [
        100 * budget[period]["bytes"] // budget[period]["bytes_max"]
        for period in ("day", "month")
        if budget[period]["bytes_max"]
    ]
    return min(max(parts), PERCENT_MAX) if parts else None

"""Logs: one JSON object a line on standard error, and a brake for errors that come in bursts."""

from __future__ import annotations

import sys

from backhaul_codec.programs import json_logs
from backhaul_runtime.clock import Clock, SystemClock


def configure(level: str) -> None:
    """Set up logging for the whole process; ``level`` is the lowest that is written."""
    json_logs.configure(sys.stderr, SystemClock().monotonic_s, level)


class Bursts:
    """Counts events by kind and says when one is worth a log line.

    The first of a kind is; then one a ``quiet_s`` at most, with how many there were since.
    """

    def __init__(self, clock: Clock, quiet_s: float = 10.0) -> None:
        self.counts: dict[str, int] = {}
        self._clock = clock
        self._quiet_s = quiet_s
        self._logged: dict[str, tuple[float, int]] = {}

    def note(self, kind: str, count: int = 1) -> int:
        """Count; return how many to report now (0: stay quiet)."""
        total = self.counts[kind] = self.counts.get(kind, 0) + count
        now_s = self._clock.monotonic_s()
        logged_s, logged = self._logged.get(kind, (-self._quiet_s + now_s, 0))
        if now_s - logged_s < self._quiet_s:
            return 0
        self._logged[kind] = (now_s, total)
        return total - logged

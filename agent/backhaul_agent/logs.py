"""Logs: one JSON object a line on standard error, and a brake for errors that come in bursts."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import TYPE_CHECKING, TextIO, cast

import structlog

if TYPE_CHECKING:
    from backhaul_agent.clock import Clock


def configure(level: str) -> None:
    """Set up structlog for the whole process; ``level`` is the lowest that is written."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", Forgiving(sys.stderr))),
        cache_logger_on_first_use=False,
    )


class Forgiving:
    """Writes to a file, and leaves out what it does not take: its disk may be full.

    An agent whose log cannot be written must go on all the same.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        """Write as much as is taken, and say that it was all."""
        with contextlib.suppress(OSError):
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        """Hand on what was written."""
        with contextlib.suppress(OSError):
            self._file.flush()


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

"""How far a recording is: rows, their time, rate, time left; on standard error, in place on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime

import click

from backhaul_codec.programs.command_line import harmless, own_terminal

TERMINAL_S, LOG_S = 0.5, 10.0


class Progress:
    """Says how far it is, now and then.

    Args:
        rows: how many there are.
        done: how many of them were kept before.
        now_s: monotonic seconds.
        every_s: how often to say it: in place on a terminal (`TERMINAL_S`), or line by line (`LOG_S`).
    """

    def __init__(self, rows: int, done: int, now_s: float, every_s: float) -> None:
        self._rows = rows
        self._began = now_s, done
        self._said_s = now_s
        self._every_s = every_s

    def due(self, done: int, time_ns: int | None, now_s: float) -> str:
        """Return the line, if it is time for one; else nothing."""
        if now_s - self._said_s < self._every_s:
            return ""
        self._said_s = now_s
        return self.line(done, time_ns, now_s)

    def line(self, done: int, time_ns: int | None, now_s: float) -> str:
        """Return how far it is. ``time_ns``: of the row that it is at, None: it has none."""
        began_s, at_first = self._began
        rate = (done - at_first) / max(now_s - began_s, 1e-3)
        parts = [f"{done:,} of {self._rows:,} rows ({100 * done // max(self._rows, 1)} %)"]
        if time_ns is not None:
            parts.append(f"{datetime.fromtimestamp(time_ns / 1e9, UTC):%Y-%m-%d %H:%M:%S}")
        parts.append(f"{rate:,.0f} rows/s")
        if rate:
            parts.append(f"{_span((self._rows - done) / rate)} left")
        return ", ".join(parts)


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class ProgressScreen:
    """Shows how far it is; arguments as of `Progress`, and a monotonic clock in seconds."""

    def __init__(self, rows: int, done: int, now_s: Callable[[], float]) -> None:
        self._terminal = sys.stderr.isatty()
        self._now_s = now_s
        self._progress = Progress(rows, done, now_s(), TERMINAL_S if self._terminal else LOG_S)

    def show(self, done: int, time_ns: int | None) -> None:
        """Show it, if it is time."""
        line = self._progress.due(done, time_ns, self._now_s())
        if line and self._terminal:
            click.echo(f"\r\x1b[K{harmless(line)}", nl=False, file=own_terminal())
        elif line:
            click.echo(line, err=True)

    def end(self) -> None:
        """Leave the line alone."""
        if self._terminal:
            click.echo("", err=True)

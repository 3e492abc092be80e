"""Progress on standard error: in place on a terminal, else a line now and then."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

from backhaul_codec.programs.command_line import harmless, own_terminal
from backhaul_codec.recordings.progress import LOG_S, TERMINAL_S, Progress


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

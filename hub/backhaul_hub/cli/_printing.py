"""The output of subcommands: points for people, JSON for programs, and on stderr progress and records."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from backhaul_codec.programs import json_logs
from backhaul_codec.programs.command_line import harmless, own_terminal
from backhaul_codec.state.point_text import table
from backhaul_runtime.clock import SystemClock


def print_json(answer: object) -> None:
    """Print an answer for programs."""
    click.echo(json.dumps(answer, indent=2, ensure_ascii=False))


def print_points(answer: dict[str, Any], *, as_json: bool) -> None:
    """Print an answer that has `points` as the hub's services give them: those, or all of it as JSON."""
    if as_json:
        print_json(answer)
    elif points := answer["points"]:
        click.echo("\n".join(table(points)))
    else:
        click.echo("no points", err=True)


def log_to_stderr() -> None:
    """Have everything write one JSON object a line to standard error."""
    json_logs.configure(sys.stderr, SystemClock().monotonic_s)


@contextmanager
def progress() -> Iterator[Callable[[str, int, int], None]]:
    """Show bars on stderr, where that is a terminal. Yield a function that takes an item, the done part, and the whole; a bar for each."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeRemainingColumn

    columns = ("{task.description}", BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    console = Console(file=own_terminal())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        tasks = {}

        def told(item: str, done: int, of: int) -> None:
            if item not in tasks:
                tasks[item] = bar.add_task(harmless(item), total=of)
            bar.update(tasks[item], completed=done, total=max(done, of))

        yield told

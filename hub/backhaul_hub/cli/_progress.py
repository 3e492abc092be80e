"""Showing how far something is, on stderr, where that is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from backhaul_codec.programs.command_line import harmless, own_terminal


@contextmanager
def progress() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function that takes an item, the done part, and the whole; a bar for each."""
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

"""A wall clock: a vehicle's agent and programs read it, or the hub's control plane, and faults make it jump."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.skewed_agent import SkewedClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.chaos.evidence import Span

_SUPPORT = Path(__file__).parents[1] / "support"


class Wall:
    """Says how far a wall clock is off, in a file that is replaced whole: nobody reads half of it.

    Args:
        file: holds seconds.
        now_ns: the true time, in ns since the Unix epoch.
    """

    def __init__(self, file: Path, now_ns: Callable[[], int]) -> None:
        self.clock = SkewedClock(file)
        self.jumps: list[Span] = []
        """Between which two true times each jump was, the first setting left out."""
        self._file = file
        self._now_ns = now_ns
        self._write(0.0)

    def agent(self, agent_toml: Path, root: Path) -> list[str]:
        """Return the command of an agent that goes by this clock, on the machine that files below `root` name."""
        words = map(str, (_SUPPORT / "skewed_agent.py", agent_toml, self._file, root))
        return [sys.executable, *words]

    def control_plane(self, directory: Path) -> list[str]:
        """Return the command of a control plane that goes by this clock."""
        return [sys.executable, "-m", "tests.support.skewed_hub", str(directory), str(self._file)]

    def jump(self, seconds: float) -> None:
        """Be off by so much from now on."""
        before_ns = self._now_ns()
        self._write(seconds)
        self.jumps.append((before_ns, self._now_ns()))

    def _write(self, seconds: float) -> None:
        fresh = self._file.with_suffix(".new")
        fresh.write_text(str(seconds))
        fresh.replace(self._file)

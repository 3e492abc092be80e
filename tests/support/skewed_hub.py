"""`backhaul-hub up` on a machine whose wall clock is wrong: by what a file says, whenever it is asked.

Run as a program: skewed_hub.py HUB_DIRECTORY OFFSET_FILE. The file holds seconds; written again while the
control plane runs, the wall clock jumps.
"""

from __future__ import annotations

import sys
from pathlib import Path

from backhaul_hub.cli import main as cli
from backhaul_hub.cli.server import up
from backhaul_runtime.clock import SystemClock
from tests.support.skewed_agent import SkewedClock


class SkewedHubClock(SystemClock):
    """The machine's clocks, the wall clock off by what a file says."""

    def __init__(self, file: Path) -> None:
        self._skewed = SkewedClock(file)

    def now_ns(self) -> int:
        return self._skewed.now_ns()


def run(directory: Path, file: Path) -> None:
    vars(up)["SystemClock"] = lambda: SkewedHubClock(file)
    cli.cli(["up", "--dir", str(directory)])


if __name__ == "__main__":
    run(Path(sys.argv[1]), Path(sys.argv[2]))

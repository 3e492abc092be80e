"""A process that maintains tables and is killed at a given step; run as `python -m`.

Arguments: table root, step (of Maintenance's `after`).
"""

from __future__ import annotations

import os
import signal
import sys

from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.jobs.maintain import Keeping, Maintenance


def main(root: str, die_after: str) -> None:
    """Maintain until the step is done."""

    def after(step: str) -> None:
        if step == die_after:
            os.kill(os.getpid(), signal.SIGKILL)

    Maintenance(root, SYSTEM_CLOCK, after).run(Keeping(points_days=1, superseded_days=1))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

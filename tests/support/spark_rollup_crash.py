"""A process that rolls up and is killed at a given step; run as `python -m`.

Arguments: table root, step (of Rollup's `after`). No Spark: the steps are the driver's.
"""

from __future__ import annotations

import os
import signal
import sys

from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.rollup.rollup import Rollup, run_here


def main(root: str, die_after: str) -> None:
    """Roll up until the step is done."""

    def after(step: str) -> None:
        if step == die_after:
            os.kill(os.getpid(), signal.SIGKILL)

    Rollup(root, SYSTEM_CLOCK, run_here, after).run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

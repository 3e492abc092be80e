"""A process that makes trips, stops and fences and is killed at a given step; run as `python -m`.

Arguments: table root, step (of Places's `after`). No Spark: the steps are the driver's.
"""

from __future__ import annotations

import os
import signal
import sys

from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.places.job import Places
from backhaul_spark.places.settings import PlacesSettings
from backhaul_spark.rollup.rollup import run_here
from tests.support.places_world import FENCES


def main(root: str, die_after: str) -> None:
    """Work until the step is done."""

    def after(step: str) -> None:
        if step == die_after:
            os.kill(os.getpid(), signal.SIGKILL)

    Places(root, SYSTEM_CLOCK, run_here, PlacesSettings(), FENCES, after).run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

"""A thousand seeded lives of a vehicle: nothing lost in silence, nothing twice, both ends agree."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.run import Run

pytestmark = pytest.mark.slow

SEEDS = 1000
CHUNK = 50
ROOT = Path(__file__).parents[2]
LIVES = """\
import logging

import structlog

from tests.simulation.run import Run

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
for seed in (24, 33, 43, 44):
    print(seed, Run(seed).go())
"""


def _chunks() -> list[range]:
    wanted = os.environ.get("BACKHAUL_SIM_SEEDS")
    if wanted:
        low, _, high = wanted.partition("-")
        return [range(int(low), int(high or low) + 1)]
    return [range(low, low + CHUNK) for low in range(0, SEEDS, CHUNK)]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seeds", _chunks(), ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_nothing_is_lost_in_silence_and_nothing_comes_twice(seeds: range) -> None:
    """Every acknowledged point is in the history once, or named; heads agree; no false word."""
    points = faults = 0
    for seed in seeds:
        counts = Run(seed).go()
        points += counts.points
        faults += counts.faults
    assert points > 30 * len(seeds)
    assert faults > 10 * len(seeds)


def test_a_seed_is_the_same_life_in_every_process() -> None:
    """Whatever order the names have in its sets."""
    paths = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    lives = [
        subprocess.run(
            [sys.executable, "-c", LIVES],
            env=os.environ | {"PYTHONHASHSEED": salt, "PYTHONPATH": paths},
            check=True,
            capture_output=True,
        ).stdout
        for salt in ("1", "2")
    ]
    assert lives[0] == lives[1] != b""

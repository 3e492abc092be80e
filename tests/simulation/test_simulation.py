"""A thousand seeded lives of a vehicle: nothing lost in silence, nothing twice, both ends agree."""

from __future__ import annotations

import os

import pytest

from tests.simulation.run import Run

SEEDS = 1000
CHUNK = 50


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

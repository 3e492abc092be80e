"""A day that is moved against the fleet's is found by what all live through; a sensor at fault is no moved day."""

from __future__ import annotations

import numpy as np
import pytest

from backhaul_spark.own_past.rhythm import Rhythms

HOURS = np.arange(24)


def days(devices: int, seed: int, moved_h: float = 0, noise: float = 0.1) -> np.ndarray:
    """Cabins that warm up by day, with a plateau at noon; the last device's by `moved_h` later than the others'."""
    dice = np.random.default_rng(seed)
    at = np.tile(HOURS, (devices, 1)).astype(float)
    at[-1] -= moved_h
    warm = np.maximum(np.sin((at - 6) / 24 * 2 * np.pi), -0.4)
    found: np.ndarray = 20 + 4 * warm + dice.normal(0, 1, (devices, 1))
    return found + dice.normal(0, noise, found.shape)


def moved_s(levels: np.ndarray, *rows: int) -> list[tuple[int, float, int]]:
    rhythms = Rhythms(np.array(rows))
    rhythms.take(levels)
    return rhythms.found()


@pytest.mark.parametrize("moved_h", [2, 5.5, 12, 20, -3])
def test_by_how_much_a_day_is_moved_is_told(moved_h: float) -> None:
    [(row, found_s, others)] = moved_s(days(30, 1, moved_h), 29)
    assert (row, others) == (29, 29)
    away_h = (found_s / 3600 - moved_h + 12) % 24 - 12
    assert abs(away_h) <= 0.5


@pytest.mark.parametrize("seed", range(20))
def test_a_day_that_is_not_moved_is_not_told(seed: int) -> None:
    levels = days(30, seed)
    levels[1, 9:] = levels[1, 9]  # sticks
    levels[2] += HOURS * 0.4  # drifts
    levels[3] += 15
    levels[4, 5:] = np.nan
    assert moved_s(levels, *range(30)) == []


def test_where_there_is_no_rhythm_or_hardly_any_other_nothing_is_told() -> None:
    assert moved_s(days(30, 1, 6, noise=9), 29) == []
    assert moved_s(days(8, 1, 6), 7) == []
    assert moved_s(days(30, 1, 6)[:, :1], 29) == []
    assert moved_s(days(30, 1, 6)) == []

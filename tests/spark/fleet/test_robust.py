"""Medians by group, and how high the bar is set for noise of each kind."""

from __future__ import annotations

import numpy as np
import pytest

from backhaul_spark.fleet.robust import group_median, group_scale, group_upper, tail_limit

CHANCE = 3e-5


def test_medians_quantiles_and_deviations_are_those_of_each_group_alone() -> None:
    dice = np.random.default_rng(1)
    values, group = dice.normal(size=500), dice.integers(0, 40, 500)
    group[group == 7] = 8  # an empty one
    values[::9] = np.nan
    median, sizes = group_median(values, group, 40)
    scale = group_scale(values, group, 40, median)
    upper = group_upper(values, group, 40, 0.1, 2)
    for number in range(40):
        own = np.sort(values[(group == number) & ~np.isnan(values)])
        assert sizes[number] == len(own)
        if len(own):
            assert median[number] == pytest.approx(np.median(own))
            apart = np.median(np.abs(own - np.median(own)))
            assert scale[number] == pytest.approx(1.4826 * apart)
            assert upper[number] == own[-1 - min(2, len(own) - 1)]
        else:
            assert np.isnan([median[number], scale[number], upper[number]]).all()


@pytest.mark.parametrize("freedom", [2.2, 3.0, 1000.0], ids=["t2.2", "t3", "normal"])
def test_the_limit_is_beyond_what_noise_of_any_tail_reaches(freedom: float) -> None:
    dice = np.random.default_rng(2)
    known = dice.standard_t(freedom, 20_000)
    more = dice.standard_t(freedom, 1_000_000)
    limit = tail_limit(known, CHANCE)
    assert (np.abs(more) > limit).mean() <= 2 * CHANCE


def test_a_few_anomalies_do_not_raise_the_limit() -> None:
    scores = np.random.default_rng(3).normal(size=5000)
    before = tail_limit(scores, CHANCE)
    scores[:20] = 1e6
    assert 0.9 * before < tail_limit(scores, CHANCE) < 1.1 * before < 20


def test_few_devices_raise_the_limit_and_none_have_none() -> None:
    dice = np.random.default_rng(4)
    assert tail_limit(dice.normal(size=40), CHANCE) > 2 * tail_limit(dice.normal(size=4000), CHANCE)
    assert tail_limit(np.array([]), CHANCE) == np.inf
    assert tail_limit(np.zeros(100), CHANCE) == np.inf


@pytest.mark.parametrize("anomalies", [0, 15, 40])
def test_anomalies_do_not_raise_their_own_limit(anomalies: int) -> None:
    """With 21 of 1,000 out by 500 deviations the limit was over 500."""
    scores = np.random.default_rng(3).standard_normal(1000)
    scores[:anomalies] = np.linspace(40, 600, anomalies)
    assert tail_limit(scores, 2.6e-5) < 20

"""The detector on NAB's labelled recordings, and how NAB scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.detector_trials import WAYS, recordings_directory, verdicts
from tests.support.nab import (
    PROFILES,
    Recording,
    best_threshold,
    judge,
    position_weights,
    read_recordings,
)

pytestmark = pytest.mark.slow


def recording(windows: tuple[tuple[int, int], ...] = ((100, 119),)) -> Recording:
    return Recording("one", np.arange(400), np.zeros(400), windows)


def alarms(*at: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    scores = np.zeros(400)
    scores[list(at)] = 1.0
    return scores


def test_silence_earns_nothing_and_the_first_sample_of_a_window_everything() -> None:
    assert judge([recording()], [alarms()], 1.0).early == 0
    best = judge([recording()], [alarms(100)], 1.0)
    assert (best.early, best.precision, best.recall, best.f1) == (100, 100, 100, 100)


def test_earlier_is_worth_more_and_only_the_first_counts() -> None:
    early, late = (judge([recording()], [alarms(at)], 1.0).early for at in (105, 118))
    assert 100 > early > late > 50  # 50 is a window found, with nothing for being early
    assert judge([recording()], [alarms(105, 106, 118)], 1.0).early == early


def test_alarms_outside_cost_and_nearly_in_time_costs_less() -> None:
    far, near = (judge([recording()], [alarms(100, at)], 1.0).early for at in (399, 120))
    assert far == pytest.approx(100 - 11 / 2, abs=0.01)
    assert far < near < 100
    assert judge([recording()], [alarms(100, 399)], 1.0).precision == 50


def test_the_learning_time_counts_for_nothing() -> None:
    assert recording().probation == 60
    assert judge([recording()], [alarms(59)], 1.0).sample_precision == 0
    assert judge([recording()], [alarms(59)], 1.0).early == 0
    assert judge([recording()], [alarms(60)], 1.0).early < 0


def test_the_best_threshold_is_the_best_of_all() -> None:
    generator = np.random.default_rng(5)
    recordings = [recording(), recording(((80, 90), (200, 240)))]
    scores = [generator.integers(0, 40, 400) / 40 for _ in recordings]
    for each, score in zip(recordings, scores, strict=True):
        score[each.windows[0][0] + 2] += 1
    found = best_threshold(recordings, scores)
    totals = {t: judge(recordings, scores, t).early for t in np.unique(np.concatenate(scores))}
    assert totals[found] == max(totals.values()) > 0
    assert best_threshold([recording()], [-position_weights(recording())]) == np.inf


def test_the_detector_beats_both_plain_ways_on_files_it_was_not_tuned_on() -> None:
    directory = recordings_directory()
    if directory is None:
        pytest.skip("recordings absent: set BACKHAUL_DATA to the directory that holds them")
    recordings = read_recordings(directory)
    assert (len(recordings), sum(len(each.windows) for each in recordings)) == (58, 116)
    ways = ("ours, tuned on the first half", "fixed threshold", "rolling z-score")
    found = {name: verdicts(recordings, WAYS[name])["standard"] for name in ways}
    for setting in ("second half", "all files"):
        ours, *others = (found[name][setting] for name in ways)
        for plain in others:
            assert ours.early > plain.early + 20
            assert ours.precision > plain.precision
            assert ours.recall > plain.recall + 10
            assert ours.f1 > plain.f1 + 10


def test_each_profile_has_its_prices() -> None:
    """A window missed costs double where misses are dear, an alarm outside where false alarms are."""
    scored = {name: judge([recording()], [alarms(399)], 1.0, name).early for name in PROFILES}
    assert scored["standard"] == pytest.approx(-5.5, abs=0.01)
    assert scored["low-FP"] == pytest.approx(-11, abs=0.01)
    assert scored["low-FN"] == pytest.approx(-11 / 3, abs=0.01)
    for name in PROFILES:
        assert judge([recording()], [alarms(100)], 1.0, name).early == 100
        assert judge([recording()], [alarms()], 1.0, name).early == 0

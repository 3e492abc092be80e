"""The detector of one series: its quantiles, what it finds, what it leaves alone, its command."""

from __future__ import annotations

import json
import math
import pickle
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.cli.answers.detect import JOINT_LEARNING, LEARNING
from backhaul_spark.cli.main import cli
from backhaul_spark.detect import joint
from backhaul_spark.detect.detector import DEFAULT, FLOATS, Detector
from backhaul_spark.detect.findings import episodes, find
from backhaul_spark.detect.quantile import Quantile
from backhaul_spark.ingest.batch import Ingest
from backhaul_spark.query.history import History, parse_series
from backhaul_spark.rollup.rollup import Rollup, run_here
from tests.support.spark_frames import T0_NS, frame, message_batch, stored, task

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

MINUTE_NS = 60_000_000_000


def days(count: int, seed: int = 7) -> list[float]:
    """A reading every five minutes: 40 by day, 20 by night, and a little noise."""
    noise = np.random.default_rng(seed).normal(size=count * 288)
    hour = np.arange(count * 288) // 12 % 24
    values: list[float] = (np.where((hour >= 8) & (hour < 20), 40.0, 20.0) + noise).tolist()
    return values


def times(count: int) -> list[int]:
    return [T0_NS + at * 5 * MINUTE_NS for at in range(count)]


@pytest.mark.parametrize("share", [0.5, 0.9, 0.996])
@pytest.mark.parametrize("kind", ["normal", "exponential", "uniform"])
def test_a_quantile_is_close_to_the_exact_one(share: float, kind: str) -> None:
    numbers = getattr(np.random.default_rng(3), kind)(size=20_000)
    estimate = Quantile(share, 10**9)
    for number in numbers:
        estimate.add(number)
    below = (numbers < estimate.value).mean()
    assert below == pytest.approx(share, abs=0.01 if share < 0.99 else 0.002)


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=200), st.sampled_from([0.5, 0.996]))
def test_a_quantile_lies_among_its_numbers(numbers: list[float], share: float) -> None:
    estimate = Quantile(share, memory=20)
    for number in numbers:
        estimate.add(number)
    assert min(numbers) <= estimate.value <= max(numbers)


def test_a_quantile_forgets() -> None:
    estimate = Quantile(0.5, memory=100)
    for number in [0.0] * 10_000 + [1.0] * 300:
        estimate.add(number)
    assert estimate.value > 0.9
    assert estimate.count <= 100


def test_a_jump_is_found_once_and_when_it_begins() -> None:
    values = days(10)
    values[2000:2040] = [90.0] * 40
    [finding] = find(times(len(values)), values)
    assert finding.start_ns == T0_NS + 2000 * 5 * MINUTE_NS
    assert finding.value == 90.0
    assert "90, where" in finding.text
    assert "beyond everything before" in finding.text


def test_a_day_at_night_is_found_though_every_value_is_ordinary() -> None:
    """What a fixed threshold and a z-score cannot see: 40 is ordinary, but not at three o'clock."""
    values = days(20)
    night = 15 * 288
    values[night : night + 72] = [value + 20 for value in values[night : night + 72]]
    assert max(values) < 46
    _, finding = find(times(len(values)), values)
    assert night <= (finding.start_ns - T0_NS) // (5 * MINUTE_NS) < night + 24
    assert finding.usual == pytest.approx(20, abs=2)


@pytest.mark.parametrize("seed", [0, 1])
def test_ordinary_days_have_few_findings_none_of_them_great(seed: int) -> None:
    found = find(times(10 * 288), days(10, seed))
    assert len(found) <= 1
    assert all(finding.score < 2 for finding in found)


def test_a_sensor_that_never_moved_and_then_does_is_found() -> None:
    values = [45.0] * 1000
    values[700] = 45.5
    assert [finding.value for finding in find(times(1000), values)] == [45.5]
    assert find(times(1000), [45.0] * 1000) == []


def test_the_first_readings_are_for_learning() -> None:
    values = days(1)
    values[50] = 1e6
    assert find(times(len(values)), values) == []


def test_values_that_are_no_numbers_are_passed_over() -> None:
    values = days(5)
    strange = [*values[:700], float("nan"), float("inf"), -float("inf"), *values[700:]]
    at = [*times(700), *[T0_NS] * 3, *times(len(values))[700:]]
    scores = Detector().scores(at, strange)
    assert scores[700:703].tolist() == [0, 0, 0]
    rest = np.delete(scores, [700, 701, 702])
    np.testing.assert_array_equal(rest, Detector().scores(times(len(values)), values))


@settings(max_examples=6)
@given(st.lists(st.integers(0, 400), max_size=5))
def test_how_readings_are_cut_into_batches_changes_nothing(cuts: list[int]) -> None:
    values, at = days(2)[:400], times(400)
    at_once = Detector().scores(at, values)
    detector, parts = Detector(), []
    for low, high in zip([0, *sorted(cuts)], [*sorted(cuts), 400], strict=True):
        parts.append(detector.scores(at[low:high], values[low:high]))
        packed, detector = detector.pack(), Detector()  # as a streaming job's state
        detector.unpack(packed)
    np.testing.assert_array_equal(np.concatenate(parts), at_once)


def test_the_state_does_not_grow() -> None:
    detector = Detector()
    assert len(detector.pack()) == FLOATS
    detector.scores(times(2_000), days(7)[:2_000])
    assert detector.pack().nbytes == 8 * FLOATS < 28_000
    assert len(pickle.dumps(detector)) < 60_000


def test_alarms_close_together_are_one_finding() -> None:
    alarms = np.zeros(500, dtype=bool)
    alarms[[10, 12, 70, 200, 499]] = True
    assert episodes(alarms, quiet=60) == [(10, 70), (200, 200), (499, 499)]
    assert episodes(np.zeros(5, dtype=bool), quiet=60) == []


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Ten days of temp with a jump, and a text series."""
    return ingested(str(tmp_path_factory.mktemp("tables")))


def ingested(path: str) -> str:
    values = days(10)
    values[2000:2040] = [90.0] * 40
    ingest = Ingest(path, SYSTEM_CLOCK)
    bodies = [
        frame(1, values, type_="temp", start_ns=T0_NS, step_ns=5 * MINUTE_NS),
        frame(2, ["idle", "drive"], type_="mode", start_ns=T0_NS),
    ]
    report = task(path, ingest.tables.next_ingest, message_batch("UP_00", stored(bodies)))
    ingest.commit("app", 0, [report])
    return path


def test_the_command_prints_findings(root: str) -> None:
    series = ["--table-root", root, "--device", "VID-001", "--series", "battery.temp"]
    result = CliRunner().invoke(cli, ["detect", *series, "--json"])
    assert result.exit_code == 0, result.output
    answer = json.loads(result.output)
    assert (answer["readings"], answer["resolution"]) == (2880, "raw")
    [finding] = answer["findings"]
    assert finding["start"] == "2026-01-07T22:40:00.000+00:00"
    assert finding["value"] == 90.0
    text = CliRunner().invoke(cli, ["detect", *series]).output
    assert "1 findings in 2,880 readings" in text
    assert "2026-01-07T22:40:00.000+00:00 to" in text
    none = CliRunner().invoke(cli, ["detect", *series, "--threshold", "50"])
    assert "0 findings" in none.output


def test_what_was_not_judged_is_said(tmp_path: Path, root: str) -> None:
    few = Ingest(str(tmp_path), SYSTEM_CLOCK)
    bodies = [frame(1, [*map(float, range(15)), math.nan, math.inf, 3.0], type_="temp")]
    report = task(str(tmp_path), few.tables.next_ingest, message_batch("UP_00", stored(bodies)))
    few.commit("app", 0, [report])
    words = ["detect", "--device", "VID-001", "--series", "battery.temp", "--table-root"]
    text = CliRunner().invoke(cli, [*words, str(tmp_path)]).output
    assert "0 findings in 18 readings" in text
    assert "0 judged; not judged: 16 for learning, the first 100; 2 NaN or infinite" in text
    answer = json.loads(CliRunner().invoke(cli, [*words, str(tmp_path), "--json"]).output)
    assert (answer["judged"], answer["not_judged"]["learning"]) == (0, 16)
    assert DEFAULT.learning == LEARNING
    assert joint.JOINT.learning == JOINT_LEARNING
    many = CliRunner().invoke(cli, [*words, root]).output
    assert "2,780 judged; not judged: 100 for learning, the first 100, to 2026-01-01T08:15" in many


def test_a_long_series_is_judged_as_finely_as_its_length_allows(root: str, tmp_path: Path) -> None:
    """Ten days of a reading in five minutes: 2,880; by the minute as many; by the hour 240."""
    rolled = ingested(str(tmp_path))
    Rollup(rolled, SYSTEM_CLOCK, run_here).run()
    series, history = parse_series("VID-001", "battery.temp"), History(rolled)
    assert history.ask(series).resolution == "1m"
    finest = [history.finest(series, None, None, most) for most in (2880, 2879, 14_400, 100)]
    assert finest == ["raw", "1h", "raw", "1h"]
    start = datetime(2026, 1, 1, tzinfo=UTC)
    assert history.finest(series, start, start + timedelta(minutes=50), 9) == "1h"
    assert history.finest(series, start, start + timedelta(minutes=50), 10) == "raw"
    words = ["detect", "--device", "VID-001", "--series", "battery.temp", "--table-root", rolled]
    assert "raw: 1 findings in 2,880" in CliRunner().invoke(cli, words).output


def test_text_has_no_findings(root: str) -> None:
    series = ["--table-root", root, "--device", "VID-001", "--series", "battery.mode"]
    assert "0 findings in 0 readings" in CliRunner().invoke(cli, ["detect", *series]).output


def test_means_of_hours_and_days_are_judged_too(tmp_path: Path) -> None:
    root = ingested(str(tmp_path))
    Rollup(root, SYSTEM_CLOCK, run_here).run()
    series = ["--table-root", root, "--device", "VID-001", "--series", "battery.temp"]
    for width, means in (("1h", 240), ("1d", 10)):
        result = CliRunner().invoke(cli, ["detect", *series, "--resolution", width, "--json"])
        assert result.exit_code == 0, result.output
        answer = json.loads(result.output)
        assert (answer["resolution"], answer["readings"]) == (width, means)

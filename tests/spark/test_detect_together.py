"""Several series of one device together: rows, the joint detector on simulated machines, its findings."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.cli.main import cli
from backhaul_spark.detect.findings import find_together
from backhaul_spark.detect.joint import JointDetector, floats_of
from backhaul_spark.detect.rows import HOLD, STEPS, JoinedRows, Row
from backhaul_spark.ingest.batch import Ingest
from tests.support.machines import MACHINES, faults_of, machine, measured, rated
from tests.support.spark_frames import T0_NS, frame, message_batch, stored, task

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

S = 1_000_000_000


def test_a_row_has_the_newest_of_each_series_and_waits_for_the_slower() -> None:
    rows = JoinedRows(2, S)
    assert rows.add(0, 100 * S, 1.0) == []
    assert rows.add(0, 101 * S, 2.0) == []
    assert rows.add(1, 100 * S, 7.0) == []
    [first] = rows.add(1, 101 * S, 8.0)
    assert first == Row(101 * S, [1.0, 7.0])
    assert rows.rest() == [Row(102 * S, [2.0, 8.0])]


def test_a_value_is_held_for_a_while_and_then_not_known() -> None:
    rows = JoinedRows(2, S)
    rows.add(1, 1000 * S, 5.0)
    found = [row for at in range(2 * STEPS) for row in rows.add(0, (1000 + at) * S, 1.0)]
    assert [row.values for row in found[: HOLD + 1]] == [[1.0, 5.0]] * (HOLD + 1)
    assert all(math.isnan(row.values[1]) for row in found[HOLD + 1 :])
    assert len(found) == 2 * STEPS - 1


@settings(max_examples=8)
@given(st.integers(1, STEPS - 2))
def test_how_far_one_series_runs_ahead_changes_no_row(frame: int) -> None:
    values = np.random.default_rng(2).normal(size=(2, 100))
    by_time, by_frame = JoinedRows(2, S), JoinedRows(2, S)
    expected = [row for at in range(100) for one in (0, 1)
                for row in by_time.add(one, at * S, values[one, at])]  # fmt: skip
    found = []
    for start in range(0, 100, frame):
        for one in (0, 1):
            for at in range(start, min(start + frame, 100)):
                found += by_frame.add(one, at * S, values[one, at])
    assert found + by_frame.rest() == expected + by_time.rest()


@pytest.mark.parametrize("name", MACHINES)
def test_faults_of_machines_are_found_where_wells_are_left_alone(name: str) -> None:
    well = measured(name, None, seed=5)
    assert rated([well]).false_alarms < 5
    found = rated([measured(name, fault, seed=5) for fault in faults_of(name)])
    assert found.f1 > 0.5
    assert found.false_alarms < 20


def test_the_signal_that_is_at_fault_is_named() -> None:
    values, _ = machine("pump", None, seed=1)
    values[900:, 4] *= 2
    detector = JointDetector(values.shape[1])
    judged = [detector.judge(row) for row in values]
    worst = max(judged[900:1000], key=lambda judgement: judgement.score)
    assert worst.score > 1
    assert int(np.argmax(worst.parts)) == 4
    assert sum(worst.parts) == pytest.approx(1)


def test_values_that_are_missing_or_stand_still_disturb_nothing() -> None:
    values, _ = machine("thermal", None, seed=2)
    holes = np.random.default_rng(4).random(values.shape) < 0.05
    values[holes] = np.nan
    values[:, 7] = 24.0
    detector = JointDetector(values.shape[1])
    scores = np.array([detector.judge(row).score for row in values])
    assert np.isfinite(scores).all()
    assert (scores[400:] >= 1).mean() < 0.05
    assert detector.judge([math.nan] * 8).score == 0


def test_the_state_is_all_there_is() -> None:
    values, _ = machine("rotating", "slip", seed=3)
    whole = JointDetector(8)
    expected = [whole.judge(row) for row in values[:700]]
    state = np.zeros(floats_of(8))
    found = []
    for row in values[:700]:
        found.append(JointDetector(8, state=state).judge(row))
        state = state.copy()
    assert found == expected


def test_series_of_other_paces_are_found_in_words() -> None:
    values, _ = machine("pump", None, seed=6)
    values[900:1000, 0] *= 0.6
    times = [1000 * S + at * S for at in range(len(values))]
    readings = [(times, values[:, one].tolist()) for one in range(7)]
    readings.append((times[::2], values[::2, 7].tolist()))
    names = [f"pump.s{one}" for one in range(8)]
    found, rows, step_ns = find_together(names, readings)
    assert step_ns == 2 * S
    assert len(rows) == pytest.approx(len(values) / 2, abs=2)
    [finding] = [one for one in found if one.start_ns >= times[900]][:1]
    assert finding.start_ns < times[930]
    assert "pump.s0" in finding.text
    assert next(iter(finding.parts)) == "pump.s0"


def test_the_command_prints_what_several_series_say_together(tmp_path: Path) -> None:
    values, _ = machine("pump", None, seed=6)
    values[900:1000, 0] *= 0.6
    root, names = str(tmp_path), ("flow", "pressure", "current")
    ingest = Ingest(root, SYSTEM_CLOCK)
    bodies = [
        frame(at + 1, values[:, at].tolist(), type_=name, start_ns=T0_NS, step_ns=S)
        for at, name in enumerate(names)
    ]
    report = task(root, ingest.tables.next_ingest, message_batch("UP_00", stored(bodies)))
    ingest.commit("app", 0, [report])
    words = ["detect", "--table-root", root, "--device", "VID-001"]
    for name in names:
        words += ["--series", f"battery.{name}"]
    result = CliRunner().invoke(cli, [*words, "--json"])
    assert result.exit_code == 0, result.output
    answer = json.loads(result.output)
    assert (answer["rows"], answer["judged"], answer["step_s"]) == (1150, 750, 1.0)
    assert any("battery.flow" in finding["text"] for finding in answer["findings"])
    text = CliRunner().invoke(cli, words).output
    assert "750 judged; not judged: 400 for learning, to 2026-01-01T00:06:40.000+00:00" in text
    twice = CliRunner().invoke(cli, [*words, "--series", "battery.flow"])
    assert twice.exit_code != 0

"""Look at a day (or an hour of it) of the whole fleet: its devices, their readings, the anomalies.

Reads rollups, completeness reports and points; writes nothing. Driver side, without Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow.compute as pc  # type: ignore[import-untyped]

from backhaul_spark.arrays import Flags, Ints
from backhaul_spark.errors import NothingFoundError
from backhaul_spark.fleet.clocks import (
    WrongClock,
    ahead_in_a_backlog,
    handed_over_later,
    late_alone,
    stored_lags,
    wrong_clocks,
)
from backhaul_spark.fleet.cohorts import Cohorts
from backhaul_spark.fleet.findings import Coverage, FleetFinding
from backhaul_spark.fleet.firmware import PastDay
from backhaul_spark.fleet.hours import HourStates, hour_states
from backhaul_spark.fleet.judge import CohortSignal, Judge
from backhaul_spark.fleet.readings import CELLS_MAX, Census, Readings, Signal, Windows
from backhaul_spark.fleet.settings import FleetSettings, signal_of
from backhaul_spark.fleet.unjudged import (
    UnjudgedPart,
    not_compared,
    unjudged_parts,
    without_clock,
    without_past,
)
from backhaul_spark.own_past.rhythm import Rhythms
from backhaul_spark.tables.delta import dataset_of, open_if_there, open_table
from backhaul_spark.tables.schemas import (
    FLEET_DAYS_TABLE,
    POINTS_TABLE,
    ROLLUPS_TABLE,
    TableSpec,
)

PAST_DAYS = 14
"""How far back a device's own past reaches; one silent for longer is no member of the fleet."""
LOOK_BACK_DAYS = 30
"""A vehicle says its model and firmware at least this often, or counts as unknown."""


@dataclass(frozen=True, slots=True)
class Survey:
    """The findings of a survey.

    Attributes:
        hours: how many hours were asked about.
        heard: of which devices there are readings worth the name.
        reported: a row a device, hours that are complete, explained, waiting.
        unjudged: what was not judged, or not as all else is.
    """

    day: date
    hour: int | None
    hours: int
    cohorts: Cohorts
    census: Census
    heard: Flags
    reported: Ints
    cohort_signals: list[CohortSignal]
    findings: list[FleetFinding]
    unjudged: list[UnjudgedPart]

    @property
    def not_judged(self) -> str:
        """The signals and clocks that nobody judged, and why: sentences, or "" for none."""
        devices: dict[Signal, int] = {}
        for each in self.cohort_signals:
            devices[each.signal] = devices.get(each.signal, 0) + each.devices
        number = {
            reason: sum(each.devices for each in self.unjudged if each.reason == reason)
            for reason in ("no_past", "clock")
        }
        said = (
            not_compared(devices),
            without_past(number["no_past"]),
            without_clock(number["clock"]),
        )
        return " ".join(filter(None, said))


class Surveyor:
    """Opens the tables under a root for surveys.

    Args:
        now_ns: hours after it are not expected.
    """

    def __init__(
        self, root: str, settings: FleetSettings, now_ns: int, cells_max: int = CELLS_MAX
    ) -> None:
        self._root, self._settings, self._now_ns = root, settings, now_ns
        rollups = dataset_of(open_table(root, ROLLUPS_TABLE))
        self._readings = Readings(rollups, cells_max)

    def survey(self, day: date, hour: int | None = None) -> Survey:
        """Survey a day, or one hour of it.

        Raises:
            NothingFoundError: there are no rollups of it, nor of the days before.
        """
        windows = Windows("1h", day, hour=hour)
        past = Windows("1d", day - timedelta(days=PAST_DAYS), PAST_DAYS)
        before = self._readings.census(past, [])
        reports = hour_states(self._root, windows)
        wrong, unknown = self._clocks(windows)
        # One whose clock is days ahead has readings in other days' hours only.
        known = [*before.devices, *reports.devices, *(each.device for each in wrong)]
        census = self._readings.census(windows, known)
        if not census.devices:
            raise NothingFoundError(
                f"no rollups of {day} or the days before", "run `backhaul-spark rollup`"
            )
        hours = self._hours(windows)
        cohorts = self.cohorts(windows, census.devices)
        by_state = reports.counts(census.devices)
        judge = Judge(
            cohorts,
            _coverage(census, by_state, hours),
            len(census.signals),
            self._settings.drains,
            unknown,
        )
        asked = [row for row, device in enumerate(census.devices) if device in unknown]
        rhythms = Rhythms(np.array(asked, dtype=np.int64))
        self._judge_signals(judge, rhythms, windows, past, census)
        judge.rollouts(self._past_days(past))
        if census.points.any():  # else it is the ingest's trouble, and no vehicle's
            last = _last_seen(census.devices, before, past)
            last |= self._seen_that_day(windows, census, before_that=last)
            last |= _in_touch(windows, reports, last)
            judge.silent(census.points, [last[device] for device in census.devices])
        shown = [
            WrongClock(census.devices[row], moved_s, 0, 0, others)
            for row, moved_s, others in rhythms.found()
        ]
        judge.clocks([*wrong, *shown])
        found = judge.findings()
        heard = judge.heard(census.points)
        signals = judge.cohort_signals
        left = unknown - {each.device for each in shown}
        gaps = unjudged_parts(judge.gaps, left, census.left_out)
        return Survey(day, hour, hours, cohorts, census, heard, by_state, signals, found, gaps)

    def _seen_that_day(
        self, windows: Windows, census: Census, before_that: Mapping[str, str]
    ) -> dict[str, str]:
        """Return of devices with readings of this day, up to the end of the windows, the last hour."""
        if windows.hour is not None:
            whole = self._readings.census(Windows("1h", windows.first), [])
            devices, seen = whole.devices, whole.seen[:, : windows.hour + 1]
        else:
            devices, seen = census.devices, census.seen
        return {
            device: f"on {windows.first} between {hours[-1]:02}:00 and {hours[-1] + 1:02}:00"
            for device, row in zip(devices, seen, strict=True)
            if len(hours := np.flatnonzero(row)) and device in before_that
        }

    def _clocks(self, windows: Windows) -> tuple[list[WrongClock], set[str]]:
        """Return the clocks that are wrong by when readings were stored, and the devices of which that tells nothing."""
        points = _dataset(self._root, POINTS_TABLE)
        if points is None:
            return [], set()
        lags = stored_lags(points, windows)
        found = {each.device: each for each in wrong_clocks(lags)}
        late = handed_over_later(points, windows)
        if late is None:
            return list(found.values()), set()
        late_lags = stored_lags(points, late)
        for each in ahead_in_a_backlog(late_lags):
            found.setdefault(each.device, each)
        unknown = set(late_alone(lags, late, late_lags)) - found.keys()
        return list(found.values()), unknown

    def _hours(self, windows: Windows) -> int:
        elapsed = (self._now_ns // 1000 - windows.start_us) // windows.step_us
        return max(min(windows.number, elapsed), 1)

    def _judge_signals(
        self, judge: Judge, rhythms: Rhythms, windows: Windows, past: Windows, census: Census
    ) -> None:
        signals = census.signals
        days = self._readings.cells(past, census.devices, signals)
        for signal, cells in self._readings.cells(windows, census.devices, signals):
            _, before = next(days)
            rhythms.take(cells.level)
            judge.take(signal, cells, before if (before.count > 0).any() else None)

    def cohorts(self, windows: Windows, devices: Sequence[str]) -> Cohorts:
        """Return devices by the model and firmware that they said last."""
        look_back = Windows("1d", windows.first - timedelta(days=LOOK_BACK_DAYS), LOOK_BACK_DAYS)
        so_far = Windows("1h", windows.first)

        def said(series: str) -> list[str]:
            texts = self._readings.last_texts((look_back, so_far), signal_of(series))
            return [texts.get(device, "") for device in devices]

        return Cohorts(devices, said(self._settings.model), said(self._settings.firmware))

    def _past_days(self, past: Windows) -> list[PastDay]:
        dataset = _dataset(self._root, FLEET_DAYS_TABLE)
        if dataset is None:
            return []
        last = past.first + timedelta(days=past.days)
        within = (pc.field("date") >= past.first) & (pc.field("date") < last)
        rows = dataset.to_table(filter=within & (pc.field("node") != "")).to_pylist()
        return [PastDay.of(row) for row in rows]


def _dataset(root: str, spec: TableSpec) -> Any:
    table = open_if_there(root, spec)
    return None if table is None else dataset_of(table)


def _coverage(census: Census, reported: Ints, hours: int) -> list[Coverage]:
    seen = census.seen.sum(axis=1)
    return [Coverage(hours, *row) for row in np.column_stack([seen, reported]).astype(int).tolist()]


def _last_seen(devices: Sequence[str], before: Census, past: Windows) -> dict[str, str]:
    """Return on which day there were readings of each device last, before the scope."""
    last = {
        device: past.first + timedelta(days=int(np.flatnonzero(days)[-1]))
        for device, days in zip(before.devices, before.seen, strict=True)
    }
    unknown = f"before {past.first}"
    return {device: f"on {last[device]}" if device in last else unknown for device in devices}


def _in_touch(windows: Windows, reports: HourStates, readings: Mapping[str, str]) -> dict[str, str]:
    """Return of devices that spoke in the scope without readings of it when they were seen.

    A completeness report that does not wait says that its vehicle spoke then.
    """
    counts = reports.counts(reports.devices)
    spoke = counts[:, 0] + counts[:, 1] > 0
    return {
        device: f"on {windows.first}, as its completeness reports say, its readings {readings[device]}"
        for device, there in zip(reports.devices, spoke, strict=True)
        if there and not readings[device].startswith(f"on {windows.first} ")
    }


def day_before(now_ns: int) -> date:
    """Return the last day that has ended, UTC."""
    return (datetime.fromtimestamp(now_ns / 1e9, UTC) - timedelta(days=1)).date()

"""Decide which devices and firmwares are anomalies, and rank them. Pure: arrays in, findings out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import date

import numpy as np

from backhaul_spark.arrays import Flags, Floats, Ints
from backhaul_spark.fleet import findings as words
from backhaul_spark.fleet.clocks import WrongClock
from backhaul_spark.fleet.cohorts import PEERS_MIN, Cohorts
from backhaul_spark.fleet.findings import ORDER, Coverage, FleetFinding
from backhaul_spark.fleet.firmware import PastDay, Rollout, firmwares_apart, rollout
from backhaul_spark.fleet.measures import Measure, SignalMeasures, row_mean
from backhaul_spark.fleet.readings import Cells, Signal
from backhaul_spark.fleet.robust import group_median, tail_limit
from backhaul_spark.fleet.stuck import Movement, Stuck, find_stuck
from backhaul_spark.fleet.unjudged import SignalGaps
from backhaul_spark.own_past.compare import DAYS_MIN, unlike_past

FALSE_DEVICES = 0.0005
"""The share of sound devices that may be named, over all signals and measures together."""
SILENT_SHARE_MAX = 0.01
"""A device with less than this of its peers' readings is silent."""


@dataclass(frozen=True, slots=True)
class CohortSignal:
    """The figures of one cohort's devices in one signal: medians of their means, and the spread."""

    cohort: int
    signal: Signal
    devices: int
    median: float
    mad: float
    fall: float | None
    fall_mad: float | None


class Judge:
    """Judges one scope (a day or an hour): signal by signal, then all together.

    Args:
        signals: how many will be judged; the more, the higher each one's limit.
        drains: those whose fall is an anomaly, such as battery.soc.
        clock_unknown: devices of which nothing tells whether the clock was right.
    """

    def __init__(
        self,
        cohorts: Cohorts,
        coverage: Sequence[Coverage],
        signals: int,
        drains: Collection[str],
        clock_unknown: Collection[str] = (),
    ) -> None:
        self._cohorts, self._coverage = cohorts, coverage
        self._clock_unknown = frozenset(clock_unknown)
        self._drains = drains
        self._chance = FALSE_DEVICES / max(3 * signals + len(drains), 1)
        seen = [each.seen for each in coverage if each.seen]
        self._usual_hours = float(np.median(seen)) if seen else 0.0
        self._found: list[FleetFinding] = []
        self._apart: set[tuple[str, str, Signal]] = set()
        self._stuck: list[tuple[Stuck, Flags, list[FleetFinding]]] = []
        self._movement = Movement(cohorts)
        self.cohort_signals: list[CohortSignal] = []
        self.gaps: dict[Signal, SignalGaps] = {}
        """What could not be compared, by signal."""

    def take(self, signal: Signal, cells: Cells, past: Cells | None) -> None:
        """Judge one signal."""
        measures = SignalMeasures(self._cohorts, cells, past)
        lively = self._movement.take(cells, measures.peer_level, past)
        stuck = find_stuck(self._cohorts, cells, past, measures.peer_level)
        self._stuck.append((stuck, lively, self._stuck_findings(signal, measures, stuck)))
        level = measures.level()
        alike = int((~np.isnan(level.value) & np.isnan(level.score)).sum())
        without_past = self._take_own_past(signal, measures, cells, past)
        alone = int((measures.present & (measures.peer_level < 0)).sum())
        if alone or alike:
            self.gaps[signal] = SignalGaps(alone, without_past, alike)
        self._take_measure(signal, level)
        self._take_measure(signal, measures.drift())
        moved = measures.moved()
        if moved is not None:
            self._take_measure(signal, moved)
        drains = str(signal) in self._drains
        if drains:
            self._take_measure(signal, measures.drain())
            self._take_firmwares(signal, measures.fall, drains=True)
        everywhere = np.where(measures.present, 1, -1).astype(np.int64)
        by_model = measures.offsets(cells.level, everywhere)
        self._take_firmwares(signal, row_mean(by_model), drains=False)
        self._note(signal, measures, drains=drains)

    def _take_own_past(
        self, signal: Signal, measures: SignalMeasures, cells: Cells, past: Cells | None
    ) -> list[str]:
        """Compare devices that have too few peers with their own days before; return those that have none."""
        alone = measures.present & (measures.peer_level < 0)
        if not alone.any():
            return []
        before = (None, None) if past is None else (past.level[alone], past.spread[alone])
        unlike = unlike_past(cells.level[alone], *before)
        numbers = np.flatnonzero(alone)
        for at in np.flatnonzero(unlike.score > 1).tolist():
            row, days = int(numbers[at]), int(unlike.days[at])
            value, usual = float(unlike.value[at]), float(unlike.usual[at])
            text = words.unlike_past_text(signal, value, usual, days)
            score = float(unlike.score[at])
            cohort = f"its own {days} days before"
            self._found.append(self._of(row, "drift", signal, score, text, value, usual, 0, cohort))
        return [self._cohorts.devices[row] for row in numbers[unlike.days < DAYS_MIN].tolist()]

    def _take_measure(self, signal: Signal, measure: Measure) -> None:
        limit = tail_limit(measure.score, self._chance)
        with np.errstate(invalid="ignore"):
            beyond = measure.score if measure.kind == "drain" else np.abs(measure.score)
            rows = np.flatnonzero(beyond > limit)
        for row in rows.tolist():
            level = int(measure.reference.level[row])
            cohort = self._cohorts.describe(row, level)
            peers = int(measure.reference.peers[row])
            value, expected = float(measure.shown[row]), float(measure.expected[row])
            who = words.peers(peers, cohort)
            text = words.measured_text(measure.kind, signal, value, expected, who)
            kind: words.Kind = "drift" if measure.kind == "moved" else measure.kind
            score = float(abs(measure.score[row]) / limit)
            self._found.append(
                self._of(row, kind, signal, score, text, value, expected, peers, cohort)
            )

    def _stuck_findings(
        self, signal: Signal, measures: SignalMeasures, stuck: Stuck
    ) -> list[FleetFinding]:
        found = []
        for i, row in enumerate(stuck.rows.tolist()):
            peers, level = measures.peers_of(row)
            cohort = self._cohorts.describe(row, level)
            hours, value = int(stuck.hours[i]), float(stuck.value[i])
            who = words.peers(peers, cohort) if level >= 0 else "most of its other signals"
            cohort = cohort if level >= 0 else "its own past"
            text = words.stuck_text(signal, value, hours, int(stuck.count[i]), who)
            score = 1 + hours / 3
            found.append(self._of(row, "stuck", signal, score, text, value, None, peers, cohort))
        return found

    def _take_firmwares(self, signal: Signal, values: Floats, *, drains: bool) -> None:
        for apart in firmwares_apart(values, self._cohorts, only_above=drains):
            if (apart.model, apart.firmware, signal) in self._apart:
                continue  # that it falls faster says more than that it lies lower
            self._apart.add((apart.model, apart.firmware, signal))
            who = words.other_firmwares(apart)
            text = words.firmware_text(signal, apart, who, falls=drains)
            self._found.append(
                FleetFinding(
                    "firmware",
                    "",
                    apart.model,
                    apart.firmware,
                    signal,
                    apart.score,
                    text,
                    apart.value,
                    apart.expected,
                    apart.others,
                    who,
                )
            )

    def _note(self, signal: Signal, measures: SignalMeasures, *, drains: bool) -> None:
        mean, mad, sizes = self._by_cohort(measures.mean)
        fall, fall_mad, _ = self._by_cohort(measures.fall)
        for cohort in np.flatnonzero(sizes).tolist():
            falls = (_number(fall[cohort]), _number(fall_mad[cohort])) if drains else (None, None)
            self.cohort_signals.append(
                CohortSignal(
                    cohort,
                    signal,
                    int(sizes[cohort]),
                    float(mean[cohort]),
                    float(mad[cohort]),
                    *falls,
                )
            )

    def _by_cohort(self, values: Floats) -> tuple[Floats, Floats, Ints]:
        groups = self._cohorts.cohort, len(self._cohorts.names)
        median, sizes = group_median(values, *groups)
        mad, _ = group_median(np.abs(values - median[groups[0]]), *groups)
        return median, mad, sizes

    def _of(
        self,
        row: int,
        kind: words.Kind,
        signal: Signal | None,
        score: float,
        text: str,
        value: float | None = None,
        expected: float | None = None,
        peers: int = 0,
        cohort: str = "",
    ) -> FleetFinding:
        of = self._cohorts
        coverage = self._coverage[row]
        if kind != "no_data" and coverage.seen < self._usual_hours:
            text += f"; {coverage}"
        if kind in words.BY_THE_HOUR and of.devices[row] in self._clock_unknown:
            text += f"; {words.CLOCK_UNKNOWN}"
        names = of.devices[row], of.models[row], of.firmwares[row]
        return FleetFinding(
            kind, *names, signal, score, text, value, expected, peers, cohort, coverage
        )

    def rollouts(self, past: Sequence[PastDay]) -> None:
        """Take in the cohorts' figures of the days before; call it when all signals were taken."""
        of: dict[tuple[str, Signal], list[PastDay]] = {}
        for each in past:
            of.setdefault((each.model, each.signal), []).append(each)
        for now in self.cohort_signals:
            model, firmware = self._cohorts.names[now.cohort]
            before = of.get((model, now.signal), [])
            if not firmware or not before:
                continue
            numbers = now.devices, now.median, now.mad, now.fall, now.fall_mad
            today = PastDay(date.max, model, firmware, now.signal, *numbers)
            for falls in (True, False):
                found = rollout(before, today, falls=falls, only_above=falls)
                if found is not None:
                    self._found.append(_rollout_finding(found, falls=falls))
                    break

    def heard(self, points: Ints) -> Flags:
        """Return which devices sent enough readings: some only name themselves.

        `points`: (devices,) int64; the result is (devices,) bool.
        """
        some = points > 0
        usual = self._cohorts.centre(
            np.where(some, points, np.nan).astype(float), self._cohorts.level_of(some)
        )
        heard: Flags = some & ~(points < SILENT_SHARE_MAX * usual)
        return heard

    def silent(self, points: Ints, last_seen: Sequence[str]) -> None:
        """Take in the devices that sent next to nothing in the scope.

        `points` is (devices,) int64, readings; `last_seen` says when each device was, before the scope. Where most of a
        cohort is silent that is one finding, and not one a vehicle.
        """
        cohorts, seen = self._cohorts, self.heard(points)
        together = np.bincount(cohorts.cohort, minlength=len(cohorts.names))
        gone = np.bincount(cohorts.cohort[~seen], minlength=len(cohorts.names))
        common = (together > PEERS_MIN) & (gone > together / 2)
        for number in np.flatnonzero(common).tolist():
            model, firmware = cohorts.names[number]
            size = f"{gone[number]:,} of {together[number]:,} vehicles"
            name = f"model {model or 'unknown'}, firmware {firmware or 'unknown'}"
            self._found.append(
                FleetFinding(
                    "no_data",
                    "",
                    model,
                    firmware,
                    None,
                    float(np.sqrt(gone[number])),
                    f"no readings from {size} of {name}",
                    peers=int(together[number] - gone[number]),
                    cohort=name,
                )
            )
        peers = cohorts.others(seen, 0)
        for row in np.flatnonzero(~seen & ~common[cohorts.cohort]).tolist():
            cohort = cohorts.describe(row, 0)
            sent = int(points[row])
            few = words.count(sent, "reading", "readings") if sent else "no readings"
            who = words.peers(int(peers[row]), cohort)
            text = f"{few}, seen last {last_seen[row]}; {who} sent more"
            found = self._of(row, "no_data", None, 2.0, text, peers=int(peers[row]), cohort=cohort)
            self._found.append(found)

    def clocks(self, wrong: Sequence[WrongClock]) -> None:
        """Take in the devices with a wrong clock."""
        row_of = {device: row for row, device in enumerate(self._cohorts.devices)}
        for each in wrong:
            if each.device in row_of:
                text = (
                    words.rhythm_text(each.offset_s, each.others)
                    if each.others
                    else words.clock_text(each.offset_s, each.unset, each.points)
                )
                score = 2 + float(np.log10(1 + abs(each.offset_s) / 60))
                row = row_of[each.device]
                value = each.offset_s or None
                self._found.append(self._of(row, "clock", None, score, text, value))

    def findings(self) -> list[FleetFinding]:
        """Return all findings, worst first: one for a device and signal, one for a wrong clock."""
        stuck = [
            each
            for rows, lively, found in self._stuck
            for each, at_rest in zip(found, self._movement.at_rest(rows, lively), strict=True)
            if not at_rest
        ]
        # A wrong clock puts all readings into wrong hours: it alone is told.
        clock = {found.device for found in self._found if found.kind == "clock"}
        # A firmware that stands apart is one finding, not one more for each of few vehicles.
        alone = [
            each
            for each in [*self._found, *stuck]
            if not (
                each.device
                and each.kind in ("drain", "level")
                and (each.model, each.firmware, each.signal) in self._apart
            )
        ]
        groups: dict[tuple[str, str, str, str], list[FleetFinding]] = {}
        for found in alone:
            signal = "" if found.device in clock else str(found.signal or "")
            key = found.device, found.model, found.firmware, signal
            groups.setdefault(key, []).append(found)
        merged = [_merged(group) for group in groups.values()]
        return sorted(merged, key=lambda each: (-each.score, each.id("")))


def _merged(group: list[FleetFinding]) -> FleetFinding:
    group.sort(key=lambda each: (ORDER.index(each.kind), -each.score))
    first = group[0]
    others = {
        f"{each.kind} of {each.signal}" if each.signal != first.signal else each.kind
        for each in group[1:]
    }
    text = first.text
    if first.kind == "firmware":  # what was before tells more than that it was noticed, too
        text = "; ".join([text, *(each.text for each in group[1:] if each.kind == "rollout")])
    also = tuple(sorted({*first.also, *others} - {first.kind}))
    return replace(first, text=text, score=max(each.score for each in group), also=also)


def _rollout_finding(found: Rollout, *, falls: bool) -> FleetFinding:
    text = words.rollout_text(found, falls=falls)
    names = found.model, found.firmware, found.signal
    numbers = found.after, found.before, found.devices
    return FleetFinding("rollout", "", *names, found.score, text, *numbers, "the days before")


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)

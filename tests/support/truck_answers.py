"""What the questions about trucks have for an answer, computed reading by reading in plain Python."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from statistics import mean
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.truck_world import NOW_NS, TruckWorld

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa  # type: ignore[import-untyped]

TEN_MINUTES_NS, DAY_NS, HOUR_NS = 600_000_000_000, 86_400_000_000_000, 3_600_000_000_000
Row = tuple[Any, ...]


class Answers:
    """Answers about the trucks of a world, from some time to another, ns since 1970."""

    def __init__(self, world: TruckWorld, from_ns: int, to_ns: int) -> None:
        self.trucks = {truck.device: truck for truck in world.trucks}
        self.by_time: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
        for device, at_ns, series, value in world.readings:
            if from_ns <= at_ns < to_ns:
                self.by_time[series, device][at_ns] = value

    def of(self, name: str) -> list[Row]:
        """Return the rows of a question's answer."""
        answer: Callable[[], Iterable[Row]] = getattr(self, name.replace("-", "_"))
        return list(answer())

    def means(self, series: str, device: str) -> dict[int, float]:
        """Return the mean of each stretch of ten minutes."""
        found = defaultdict(list)
        for at_ns, value in self.by_time[series, device].items():
            found[at_ns // TEN_MINUTES_NS * TEN_MINUTES_NS].append(value)
        return {at_ns: mean(found[at_ns]) for at_ns in sorted(found)}

    def newest(self, series: str, device: str) -> tuple[int, float]:
        return max(self.by_time[series, device].items())

    def last_known(self) -> Iterable[Row]:
        for (series, device), values in sorted(self.by_time.items()):
            node, type_ = series.split(".")
            yield device, node, type_, "", moment(max(values)), values[max(values)], None

    def series(self) -> Iterable[Row]:
        """With the unit of truck.load, which the test's settings have."""
        for series in sorted({series for series, _ in self.by_time}):
            lasts = [max(values) for (other, _), values in self.by_time.items() if other == series]
            unit = "kg" if series == "truck.load" else None
            yield *series.split("."), "", unit, len(lasts), moment(max(lasts))

    def longest_without_contact(self) -> Iterable[Row]:
        lasts = {
            d: max(max(v) for (_, o), v in self.by_time.items() if o == d) for d in self.trucks
        }
        for device in sorted(lasts, key=lambda each: (lasts[each], each)):
            truck, silent_h = self.trucks[device], (NOW_NS - lasts[device]) / HOUR_NS
            yield device, truck.fleet, truck.model, moment(lasts[device]), silent_h

    def utilisation(self) -> Iterable[Row]:
        for device, truck in self.trucks.items():
            for day, speeds in by_day(self.means("gps.speed", device)).items():
                moved = sum(speed > 1 for speed in speeds)
                figures = moved / 6, len(speeds) / 6, moved / 144
                yield device, truck.fleet, truck.model, day, *figures

    def stationary_engine_on(self) -> Iterable[Row]:
        found = []
        for device, truck in self.trucks.items():
            speeds = self.means("gps.speed", device)
            on = [at for at, part in self.means("engine.running", device).items() if part >= 0.5]
            idle = sum(speeds[at] <= 1 for at in on)
            if idle:
                hours = idle / 6, len(on) / 6, idle / len(on)
                found.append((device, truck.fleet, truck.driver, *hours))
        return sorted(found, key=lambda row: (-row[3], row[0]))

    def last_location(self) -> Iterable[Row]:
        for device, truck in self.trucks.items():
            (at_ns, lat), (_, lon) = (self.newest(f"gps.{each}", device) for each in ("lat", "lon"))
            yield device, truck.driver, moment(at_ns), lat, lon

    def low_fuel(self) -> Iterable[Row]:
        for device, truck in self.trucks.items():
            at_ns, fuel = self.newest("truck.fuel", device)
            if fuel < 0.1:
                yield device, truck.driver, moment(at_ns), fuel

    def high_load(self) -> Iterable[Row]:
        for device, truck in self.trucks.items():
            at_ns, load = self.newest("truck.load", device)
            if load / truck.load_capacity > 0.9:
                yield device, truck.driver, moment(at_ns), load, load / truck.load_capacity

    def stationary(self) -> Iterable[Row]:
        for device, truck in self.trucks.items():
            speed = mean(self.by_time["gps.speed", device].values())
            if speed < 1:
                yield device, truck.driver, speed

    def long_driving_sessions(self) -> Iterable[Row]:
        return self._moved_longer_than(22)

    def long_daily_sessions(self) -> Iterable[Row]:
        return self._moved_longer_than(60)

    def _moved_longer_than(self, stretches: int) -> Iterable[Row]:
        for device, truck in self.trucks.items():
            moved = sum(speed > 1 for speed in self.means("gps.speed", device).values())
            if moved > stretches:
                yield device, truck.driver, moved / 6

    def fuel_use_and_nominal(self) -> Iterable[Row]:
        used, nominal = defaultdict(list), defaultdict(list)
        for device, truck in self.trucks.items():
            for at_ns, value in self.by_time["truck.fuel_use", device].items():
                if self.by_time["gps.speed", device][at_ns] > 1:
                    used[truck.fleet].append(value)
                    nominal[truck.fleet].append(truck.nominal_fuel_use)
        return [(fleet, mean(used[fleet]), mean(nominal[fleet])) for fleet in sorted(used)]

    def daily_driving_duration(self) -> Iterable[Row]:
        for device, truck in self.trucks.items():
            days = by_day(self.means("gps.speed", device)).values()
            hours = [moved / 6 for speeds in days if (moved := sum(s > 1 for s in speeds))]
            yield truck.fleet, device, truck.driver, len(hours), mean(hours)

    def daily_driving_session(self) -> Iterable[Row]:
        for device in self.trucks:
            speeds = list(self.means("gps.speed", device).items())
            changes = [
                (at, speed > 5)
                for (_, before), (at, speed) in pairwise(speeds)
                if (speed > 5) != (before > 5)
            ]
            minutes = defaultdict(list)
            for (begin, drives), (end, _) in pairwise(changes):
                if drives:
                    minutes[day_of(begin)].append((end - begin) / 60e9)
            yield from ((device, day, len(each), mean(each)) for day, each in minutes.items())

    def average_load(self) -> Iterable[Row]:
        parts = defaultdict(list)
        for device, truck in self.trucks.items():
            load = mean(self.by_time["truck.load", device].values())
            parts[truck.fleet, truck.model, truck.load_capacity].append(load / truck.load_capacity)
        return [(*key, len(each), mean(each)) for key, each in sorted(parts.items())]

    def daily_activity(self) -> Iterable[Row]:
        found = defaultdict(list)
        for device, truck in self.trucks.items():
            for day, means in by_day(self.means("truck.status", device)).items():
                found[day, truck.fleet, truck.model].append(sum(each < 1 for each in means))
        for (day, fleet, model), each in sorted(found.items()):
            yield fleet, model, day, len(each), sum(each) / 6

    def breakdown_frequency(self) -> Iterable[Row]:
        found: dict[str, list[str]] = defaultdict(list)
        for device, truck in self.trucks.items():
            broken = [each >= 0.5 for each in self.means("truck.status", device).values()]
            times = sum(now and not before for before, now in pairwise(broken))
            found[truck.model] += [device] * times
        return [(model, len(each), len(set(each))) for model, each in sorted(found.items()) if each]


def energy_per_distance(world: TruckWorld, trips: list[dict[str, Any]]) -> list[Row]:
    """Return the answer about these trips."""
    said = {truck.device: (truck.firmware, truck.model) for truck in world.trucks}
    found = defaultdict(list)
    for trip in trips:
        if trip["energy_wh"] is not None and trip["end_ns"] < NOW_NS:
            found[said[trip["device"]]].append(trip)
    rows = []
    for key, each in sorted(found.items()):
        km, wh = sum(t["distance_m"] for t in each) / 1000, sum(t["energy_wh"] for t in each)
        rows.append((*key, len({t["device"] for t in each}), len(each), km, wh, wh / km))
    return rows


def moment(at_ns: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_ns // 1000)


def day_of(at_ns: int) -> Any:
    return moment(at_ns).date()


def by_day(stretches: dict[int, float]) -> dict[Any, list[float]]:
    found: dict[Any, list[float]] = defaultdict(list)
    for at_ns, value in stretches.items():
        found[day_of(at_ns)].append(value)
    return found


def rows_of(answer: pa.Table) -> list[Row]:
    return [tuple(row.values()) for row in answer.to_pylist()]


def assert_alike(found: list[Row], wanted: list[Row]) -> None:
    """Sums of doubles differ in their last bits with the order in which they are added."""
    assert len(found) == len(wanted)
    for row, other in zip(found, wanted, strict=True):
        for value, expected in zip(row, other, strict=True):
            alike = pytest.approx(expected, rel=1e-12) if isinstance(expected, float) else expected
            assert value == alike, (row, other)

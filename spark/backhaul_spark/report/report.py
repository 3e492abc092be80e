"""Write one page about a day of the fleet, which needs nothing but itself. No Spark.

What is judged is read from `anomalies` and `fleet_days`; how each hour stands, from completeness reports and
rollups. Pictures are matplotlib's, as images; the page is a Jinja2 template that escapes everything
and allows no script, as names and texts come from vehicles.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from jinja2 import Environment, PackageLoader, StrictUndefined
from numpy.typing import NDArray

from backhaul_runtime.clock import Clock
from backhaul_spark import palette
from backhaul_spark.arrays import Floats
from backhaul_spark.errors import NothingFoundError, OptionError, TableMissingError
from backhaul_spark.fleet.findings import count, duration, number
from backhaul_spark.fleet.hours import COMPLETE, UNREPORTED, hour_states, states_since
from backhaul_spark.fleet.readings import Readings, Signal, Windows
from backhaul_spark.fleet.settings import FleetSettings
from backhaul_spark.fleet.standing import standing, unjudged
from backhaul_spark.fleet.unjudged import handed_over_later, not_compared
from backhaul_spark.page_links import PageLinks
from backhaul_spark.places.day import day_of_places, restated_days
from backhaul_spark.report import charts
from backhaul_spark.report.evidence import LAT, LON, PeerEvidence
from backhaul_spark.tables.delta import dataset_of, open_if_there, open_table
from backhaul_spark.tables.schemas import (
    ANOMALIES_TABLE,
    FLEET_DAYS_TABLE,
    ROLLUPS_TABLE,
    UNJUDGED_TABLE,
)

HISTORY_DAYS = 30
ROWS_MAX = 200
"""Anomalies that the page lists; the table has all."""
WORST_MAX = 30
NAMED_MAX = 40
"""Devices that have a row of their own in the heat map: those with the fewest complete hours."""
SIGNALS_MAX = 9
LATER_MAX = 1000
"""Devices of which it is looked up how their hours since the day stand."""
_REPORTED = ("hours_complete", "hours_explained", "hours_waiting")

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Written:
    """Where the page is, and how large."""

    path: str
    size_bytes: int
    devices: int
    anomalies: int


class Report:
    """Makes the page of a day."""

    def __init__(
        self,
        root: str,
        clock: Clock,
        settings: FleetSettings | None = None,
        pages: PageLinks | None = None,
    ) -> None:
        self._root, self._clock = root, clock
        self._settings = settings or FleetSettings()
        self._pages = pages or PageLinks("")

    def write(self, day: date, directory: str) -> Written:
        """Write `fleet-<day>.html` into a directory, which is made if need be.

        Raises:
            NothingFoundError: the day has not been judged.
            OptionError: the directory cannot be written to.
        """
        target = _target(directory, day)
        unfinished = target.with_suffix(".unfinished")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            read_ns = self._clock.now_ns()
            page, devices, anomalies = self.page(day)
            unfinished.write_text(page, encoding="utf-8")
            # As old as what it says, for `due`: the day may be judged while the page is drawn.
            os.utime(unfinished, ns=(read_ns, read_ns))
            unfinished.replace(target)
        except OSError as error:
            expected = f"a directory to write to ({error.strerror})"
            raise OptionError("--out", directory, expected) from error
        return Written(str(target), len(page.encode()), devices, anomalies)

    def due(self, directory: str) -> list[date]:
        """Return which of the last 30 judged days have no page there, or say something else since.

        Raises:
            TableMissingError: there are no rollups, so this is no root of tables.
        """
        open_table(self._root, ROLLUPS_TABLE)
        try:
            tables = [open_table(self._root, spec) for spec in (FLEET_DAYS_TABLE, ANOMALIES_TABLE)]
            if (gaps := open_if_there(self._root, UNJUDGED_TABLE)) is not None:
                tables.append(gaps)
        except TableMissingError:  # nothing was judged yet
            return []
        columns = ["date", "computed_at"]
        said = pa.concat_tables(dataset_of(each).to_table(columns) for each in tables)
        judged = said.column("date").unique()
        moved = restated_days(self._root)
        moved = moved.filter(pc.is_in(moved.column("date"), value_set=judged))
        newest = (
            pa.concat_tables([said, moved]).group_by("date").aggregate([("computed_at", "max")])
        )
        rows = newest.sort_by([("date", "descending")]).slice(0, HISTORY_DAYS).to_pylist()
        return sorted(
            row["date"]
            for row in rows
            if row["computed_at_max"] > _read_at(_target(directory, row["date"]))
        )

    def page(self, day: date) -> tuple[str, int, int]:
        """Return the page, and how many devices and anomalies it is about. Raises: NothingFoundError."""
        history = self._history(day)
        today = [row for row in history if row["date"] == day]
        if not today:
            hint = f"run `backhaul-spark anomalies --day {day}` first"
            raise NothingFoundError(f"{day} in fleet_days", hint)
        found = standing(self._root, day)
        devices, codes, signals = self._hours(
            day, [row["device"] for row in found if row["device"]]
        )
        evidence = PeerEvidence(self._root, self._settings, day, devices, self._clock.now_ns())
        cohorts = [row for row in today if not row["node"]]
        unreported = int((codes == UNREPORTED).sum())
        now = datetime.fromtimestamp(self._clock.now_ns() / 1e9, UTC)
        page = _template().render(
            day=day,
            written_at=f"{now:%Y-%m-%d %H:%M} UTC",
            ingest=max(row["ingest"] for row in today),
            tiles=_tiles(cohorts, len(found), unreported),
            later=self._later(day, devices, codes),
            overview=_overview(history),
            signals=_signals(history),
            cohorts=cohorts,
            firmwares=_firmwares(today),
            worst=[row | {"link": self._pages.device(row["device"], day)} for row in _worst(found)],
            anomalies=self._shown(day, found[:ROWS_MAX], evidence, devices, codes),
            fleet_link=self._pages.fleet(day),
            map=_map(evidence, signals, found),
            peer_colours={"own": palette.SERIES[1], "peers": palette.LINE, "middle": palette.QUIET},
            not_compared=not_compared(_devices_by_signal(today)),
            unjudged=(gaps := unjudged(self._root, day))[:ROWS_MAX],
            unjudged_more=max(len(gaps) - ROWS_MAX, 0),
            anomalies_more=max(len(found) - ROWS_MAX, 0),
            heat_map=_heat_map(devices, codes),
            places=day_of_places(self._root, day),
            states=[(name, charts.state_key(code)) for code, name in enumerate(charts.STATE_NAMES)],
            palette=palette,
        )
        return page, len(devices), len(found)

    def _shown(
        self,
        day: date,
        found: Sequence[Row],
        evidence: PeerEvidence,
        devices: Sequence[str],
        codes: NDArray[np.int8],
    ) -> list[Row]:
        """Return anomalies with a picture and a link each: beside its peers, or how its hours stand."""
        compared = evidence.compared(found)
        number = {device: at for at, device in enumerate(devices)}
        shown = []
        for row in found:
            signal = str(Signal(row["node"], row["type"], row["key"])) if row["node"] else ""
            link = self._pages.device(row["device"], day, signal) if row["device"] else ""
            picture, about = None, ""
            if (beside := compared.get(row["id"])) is not None:
                picture, about = charts.comparison(beside), beside.what
            elif row["device"] in number:
                picture, about = charts.strip(codes[number[row["device"]]]), "hours of the day"
            shown.append(row | {"link": link, "picture": picture, "about": about})
        return shown

    def _later(self, day: date, devices: Sequence[str], codes: NDArray[np.int8]) -> str:
        """Describe the hours that have readings and no completeness report."""
        hours = (codes == UNREPORTED).sum(axis=1)
        of = [devices[at] for at in np.flatnonzero(hours).tolist()]
        since = states_since(self._root, day, of) if len(of) <= LATER_MAX else None
        return handed_over_later(int(hours.sum()), len(of), since)

    def _history(self, day: date) -> list[Row]:
        within = (pc.field("date") > day - timedelta(days=HISTORY_DAYS)) & (pc.field("date") <= day)
        dataset = dataset_of(open_table(self._root, FLEET_DAYS_TABLE))
        keys = ("date", "model", "firmware", "node", "type", "key")
        rows = dataset.to_table(filter=within).sort_by([(key, "ascending") for key in keys])
        found: list[Row] = rows.to_pylist()
        return found

    def _hours(
        self, day: date, known: Sequence[str]
    ) -> tuple[list[str], NDArray[np.int8], list[Signal]]:
        """Return devices, how their hours stand, least complete first, and signals; `known` sent nothing, maybe."""
        windows = Windows("1h", day)
        reports = hour_states(self._root, windows)
        readings = Readings(dataset_of(open_table(self._root, ROLLUPS_TABLE)))
        census = readings.census(windows, [*reports.devices, *known])
        codes = reports.standing(census.devices, census.seen)
        order = np.lexsort((codes.sum(axis=1), (codes == COMPLETE).sum(axis=1)))
        return [census.devices[at] for at in order.tolist()], codes[order], census.signals


def _target(directory: str, day: date) -> Path:
    return Path(directory) / f"fleet-{day}.html"


def _read_at(page: Path) -> datetime:
    """Return when the tables were read for a page, 1970 if there is none."""
    try:
        return datetime.fromtimestamp(page.stat().st_mtime, UTC)
    except FileNotFoundError:
        return datetime.fromtimestamp(0, UTC)


def _template() -> Any:
    loader = PackageLoader("backhaul_spark.report", ".")
    page = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    page.filters |= {"number": _shown, "share": _share, "duration": duration}
    return page.get_template("report.html")


def _shown(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else number(value)


def _share(part: int | None, whole: int | None) -> str:
    return f"{100 * (part or 0) / whole:.1f} %" if whole else ""


def _devices_by_signal(today: Sequence[Row]) -> dict[Signal, int]:
    devices: defaultdict[Signal, int] = defaultdict(int)
    for row in today:
        if row["node"]:
            devices[Signal(row["node"], row["type"], row["key"])] += row["devices"]
    return devices


def _tiles(cohorts: Sequence[Row], anomalies: int, unreported: int) -> list[tuple[str, str]]:
    def total(name: str) -> int:
        return sum(row[name] for row in cohorts)

    hours = total("hours")
    states = [
        (_share(total("hours_complete"), hours), "are reported complete"),
        (f"{total('hours_waiting'):,}", "device-hours waiting"),
    ]
    if unreported:
        later = (f"{unreported:,}", "device-hours have readings that came later")
        # Of a day that was handed over later altogether no part is reported, and none is missing.
        states = [*(states if any(map(total, _REPORTED)) else ()), later]
    return [
        (f"{total('devices'):,}", "devices with readings"),
        (f"{total('silent'):,}", "silent"),
        (f"{total('points'):,}", "readings"),
        (_share(total("hours_seen"), hours), "of device-hours have readings"),
        *states,
        (f"{anomalies:,}", "anomaly" if anomalies == 1 else "anomalies"),
    ]


def _overview(history: Sequence[Row]) -> str:
    days = sorted({row["date"] for row in history})
    sums: dict[date, defaultdict[str, int]] = {each: defaultdict(int) for each in days}
    names = ("devices", "silent", "points", "hours", "hours_seen", "hours_complete", "anomalies")
    for row in history:
        if not row["node"]:
            for name in names:
                sums[row["date"]][name] += row[name]

    def of(name: str, per: str | None = None) -> Floats:
        values = [sums[each][name] / (max(sums[each][per], 1) / 100 if per else 1) for each in days]
        return np.array(values, dtype=float)

    panels = [
        ("devices with readings", of("devices")),
        ("silent devices", of("silent")),
        ("anomalies", of("anomalies")),
        ("readings", of("points")),
        ("hours with readings, %", of("hours_seen", "hours")),
        ("hours complete, %", of("hours_complete", "hours")),
    ]
    return charts.small_multiples(days, panels, from_zero=True)


def _signals(history: Sequence[Row]) -> str | None:
    """Draw the medians of the signals that most devices have: the middle of the cohorts' medians."""
    days = sorted({row["date"] for row in history})
    devices: defaultdict[Signal, int] = defaultdict(int)
    values: defaultdict[tuple[Signal, date], list[tuple[float, int]]] = defaultdict(list)
    for row in history:
        # The middle of all places is no place.
        if row["node"] and row["median"] is not None and row["type"] not in (LAT, LON):
            signal = Signal(row["node"], row["type"], row["key"])
            devices[signal] += row["devices"]
            values[signal, row["date"]].append((row["median"], row["devices"]))
    ranked = sorted(devices, key=lambda signal: (-devices[signal], signal))[:SIGNALS_MAX]
    panels = [
        (str(signal), np.array([_middle(values[signal, each]) for each in days]))
        for signal in sorted(ranked)
    ]
    return charts.small_multiples(days, panels) if panels else None


def _middle(medians: Sequence[tuple[float, int]]) -> float:
    """Return the median of the medians, each counting as many times as it has devices."""
    if not medians:
        return float("nan")
    value, weight = np.array(sorted(medians)).T
    return float(value[np.searchsorted(np.cumsum(weight), weight.sum() / 2)])


def _firmwares(today: Sequence[Row]) -> list[Row]:
    """Return the signals of models that run more than one firmware, firmware beside firmware."""
    groups: defaultdict[tuple[str, str, str, str], list[Row]] = defaultdict(list)
    for row in today:
        if row["node"]:
            groups[row["model"], row["node"], row["type"], row["key"]].append(row)
    return [
        {
            "model": model,
            "signal": str(Signal(*signal)),
            "rows": sorted(rows, key=lambda row: str(row["firmware"])),
            "falls": any(row["fall_median"] is not None for row in rows),
        }
        for (model, *signal), rows in sorted(groups.items())
        if len(rows) > 1
    ]


def _worst(found: Sequence[Row]) -> list[Row]:
    """Return the devices by their worst anomaly, with all that was found of each."""
    of: dict[str, Row] = {}
    for row in found:
        if row["device"]:
            names = {name: row[name] for name in ("device", "model", "firmware")}
            entry = of.setdefault(
                row["device"], names | {"score": 0.0, "texts": [], "seen": "", "hours_waiting": 0}
            )
            entry["score"] += row["score"]
            entry["texts"].append(row["text"])
            entry["seen"] = f"{row['hours_seen']} of {row['hours']}"
            entry["hours_waiting"] = row["hours_waiting"]
    return sorted(of.values(), key=lambda entry: -entry["score"])[:WORST_MAX]


def _map(evidence: PeerEvidence, signals: Sequence[Signal], found: Sequence[Row]) -> str | None:
    """Draw where the devices are, those with anomalies in the order of the worst; None where none says it."""
    places = evidence.places(signals)
    marked = dict.fromkeys(row["device"] for row in found if row["device"])
    return charts.fleet_map(places, list(marked)) if places else None


def _heat_map(devices: Sequence[str], codes: NDArray[np.int8]) -> Row:
    if not devices:
        return {"named": None, "all": None, "said": "no device was heard of"}
    incomplete = int((codes != COMPLETE).any(axis=1).sum())
    some = min(incomplete, NAMED_MAX)
    of = f"{incomplete:,} of {count(len(devices), 'device', 'devices')} have hours that are not complete"
    said = f"{of}, the least complete first" if some else "all hours of all devices are complete"
    named = charts.named_heat_map(devices[:some], codes[:some]) if some else None
    return {"named": named, "all": charts.banded_heat_map(codes), "said": said}

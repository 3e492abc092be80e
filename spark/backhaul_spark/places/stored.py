"""States of vehicles after each of their hours, as the table `place_states` has them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from datetime import date, timedelta
from itertools import dropwhile
from typing import TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from deltalake import DeltaTable

from backhaul_spark.tables.delta import dataset_of
from backhaul_spark.tables.files import DataFile, data_files
from backhaul_spark.tables.rewrite import Action, Rewrite
from backhaul_spark.tables.schemas import PLACE_STATES_TABLE

# Application ids of the table: up to which ingest positions were looked at, the settings (a number that stands for
# them), and the number of the run, which the tables of rows have, too.
PLACES_APP = "backhaul-places"
SETTINGS_APP = "backhaul-places-settings"
RUN_APP = "backhaul-places-run"
# The state of an hour that a run has begun to compute again: no vehicle's.
VOID = ""
DAYS_HELD = 64
_DAY_1970 = date(1970, 1, 1)
Hours: TypeAlias = dict[str, dict[int, str]]
"""By device and hour since 1970 the state after it."""


class Stored:
    """The states of some devices, read day by day as they are asked for."""

    def __init__(self, table: DeltaTable, devices: Collection[str]) -> None:
        self._data = dataset_of(table, PLACE_STATES_TABLE)
        self._devices = pa.array(sorted(devices), pa.string())
        names, files = sorted(devices), data_files(table, PLACE_STATES_TABLE)
        days = {file.partition["date"] for file in files if file.may_have(names)}
        self._days = sorted(map(date.fromisoformat, days))
        self._held: OrderedDict[date, Hours] = OrderedDict()

    def before(self, hours: Mapping[str, int]) -> dict[str, str]:
        """Return of devices their state before an hour, of those that have one."""
        found: dict[str, str] = {}
        for day in reversed(self._days):
            open_ = {device: hour for device, hour in hours.items() if device not in found}
            if not open_:
                break
            if day > day_of(max(open_.values())):
                continue
            told = self._day(day)
            for device, hour in open_.items():
                if earlier := [each for each in told.get(device, {}) if each < hour]:
                    found[device] = told[device][max(earlier)]
        return found

    def after(self, device: str, hour: int) -> Iterator[tuple[int, str]]:
        """Yield a device's hours from one on, that one included, each with the state after it."""
        for day in dropwhile(lambda each: each < day_of(hour), self._days):
            for each, state in sorted(self._day(day).get(device, {}).items()):
                if each >= hour:
                    yield each, state

    def _day(self, day: date) -> Hours:
        if (held := self._held.get(day)) is not None:
            self._held.move_to_end(day)
            return held
        wanted = (pc.field("date") == day) & pc.field("device").isin(self._devices)
        rows = self._data.to_table(columns=["device", "hour", "state"], filter=wanted)
        found: Hours = {}
        for row in rows.to_pylist():
            found.setdefault(row["device"], {})[row["hour"]] = row["state"]
        self._held[day] = found
        if len(self._held) > DAYS_HELD:
            self._held.popitem(last=False)
        return found


def void_hours(table: DeltaTable) -> list[tuple[str, int]]:
    """Return (device, hour) of the states that a run voided that came to no end."""
    files = pa.table(table.get_add_actions(flatten=True))
    if "min.state" not in files.column_names:
        return []
    if not pc.any(pc.equal(files.column("min.state"), VOID)).as_py():
        return []
    rows = dataset_of(table, PLACE_STATES_TABLE).to_table(
        columns=["device", "hour"], filter=pc.field("state") == VOID
    )
    return [(row["device"], row["hour"]) for row in rows.to_pylist()]


def put(
    table: DeltaTable, states: Mapping[tuple[str, int], str], ingest: int, at_us: int
) -> list[Action]:
    """Return the actions that put states in the place of those of the same hours."""
    rewrite = Rewrite(table, PLACE_STATES_TABLE, ("device", "hour"), ingest, at_us)
    devices = sorted({device for device, _ in states})
    days = {str(day_of(hour)) for _, hour in states}

    def wanted(file: DataFile) -> bool:
        return file.partition["date"] in days and file.may_have(devices)

    for file, rows in rewrite.files(wanted):
        names, hours = rows.column("device").to_pylist(), rows.column("hour").to_pylist()
        kept = [key not in states for key in zip(names, hours, strict=True)]
        if not all(kept):
            rewrite.keep(file, rows.filter(pa.array(kept)))
    new = [
        {"device": device, "hour": hour, "state": state, "ingest": ingest, "date": day_of(hour)}
        for (device, hour), state in states.items()
    ]
    rewrite.write(pa.Table.from_pylist(new, PLACE_STATES_TABLE.schema))
    return rewrite.actions


def day_of(hour: int) -> date:
    """Return the UTC day of an hour since 1970."""
    return _DAY_1970 + timedelta(hour // 24)

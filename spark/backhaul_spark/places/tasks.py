"""Fold hours: the task of a run. Executor side, without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from backhaul_codec.points import FLOAT64, INT64, UINT64
from backhaul_spark.arrays import Flags, Ints
from backhaul_spark.columns import columns
from backhaul_spark.places.crossings import Fence
from backhaul_spark.places.earth import Series
from backhaul_spark.places.fence_shapes import Shapes
from backhaul_spark.places.fold import Inside, VehicleFold
from backhaul_spark.places.segments import Row
from backhaul_spark.places.settings import Names, PlacesSettings, Role
from backhaul_spark.rollup.read import Wanted, numbers_of, readings, series_places

HOUR_NS = 3_600_000_000_000
# A state after an hour (table `states`), or a row that became certain in it; `body` is JSON.
FOLDED = columns("device string, hour bigint, table string, body string")
STATES = "states"
ROLES: tuple[Role, ...] = ("lat", "lon", "energy", "running")
# Of readings with one time the last one counts, in the order in which a rollup has them.
_ORDER = ("device", "role", "time_ns", "seq", "index", "epoch", "lane")
_READ = ("device", "node", "type", "key", "time_ns", "seq", "index", "epoch", "lane")
_VALUES = ("dtype", "value_f64", "value_i64")


@dataclass(frozen=True, slots=True)
class Stretch:
    """Hours of a device that have readings, in their order, from the first one that is to be computed again.

    An hour is computed again if it was touched, or if the state after the hour before it became another.

    Attributes:
        device: its id.
        before: its state before the first hour, None for none.
        hours: of each hour since 1970 its state after it as it is known, None for none, and whether readings
            have come into it since.
    """

    device: str
    before: str | None
    hours: tuple[tuple[int, str | None, bool], ...]


def folded(
    stretch: Stretch,
    readings_of: Mapping[int, Mapping[Role, Series]],
    inside: Inside,
    settings: PlacesSettings,
) -> tuple[dict[int, str], list[tuple[int, str, Row]]]:
    """Return the state after each hour that had to be computed, and the rows that became certain: hour, table, row."""
    states: dict[int, str] = {}
    rows: list[tuple[int, str, Row]] = []
    state, changed = stretch.before, True
    for hour, known, touched in stretch.hours:
        if not (touched or changed):
            state = known
            continue
        vehicle = VehicleFold.of(state)
        found = vehicle.take(readings_of.get(hour, {}), inside, settings)
        rows += [(hour, table, row) for table, row in found]
        state = states[hour] = vehicle.text()
        changed = state != known
    return states, rows


@dataclass(frozen=True, slots=True)
class FoldHours:
    """Compute the hours of some devices again; readings of ingests after `ingest` are for the next run."""

    uri: str
    paths: tuple[str, ...]
    ingest: int
    stretches: tuple[Stretch, ...]
    settings: PlacesSettings
    fences: tuple[Fence, ...]

    def run(self) -> pa.Table:
        """Return states and certain rows, schema FOLDED, of each hour that had to be computed again."""
        told = self._readings()
        shapes = Shapes(self.fences)
        rows: list[tuple[str, int, str, str]] = []
        for stretch in self.stretches:
            of = told.get(stretch.device, {})
            states, certain = folded(stretch, of, shapes.inside, self.settings)
            for hour, table, row in certain:
                rows.append((stretch.device, hour, table, msgspec.json.encode(row).decode()))
            rows += [(stretch.device, hour, STATES, state) for hour, state in states.items()]
        cells = list(zip(*rows, strict=True)) or [()] * len(FOLDED)
        arrays = [pa.array(each, kind) for each, kind in zip(cells, FOLDED.types, strict=True)]
        return pa.Table.from_arrays(arrays, schema=FOLDED)

    def _readings(self) -> dict[str, dict[int, dict[Role, Series]]]:
        hours = [hour for stretch in self.stretches for hour, _, _ in stretch.hours]
        wanted = Wanted(
            -1,
            self.ingest,
            (min(hours) * HOUR_NS, (max(hours) + 1) * HOUR_NS - 1),
            pa.array([stretch.device for stretch in self.stretches]),
        )
        roles = self.settings.roles()
        found = readings(self.uri, self.paths, [*_READ, *_VALUES], wanted)
        parts = [_numbers(batch, roles) for batch in found]
        return _by_hour(pa.concat_tables(parts)) if parts else {}


def _numbers(batch: pa.RecordBatch, roles: Mapping[Names, Role]) -> pa.Table:
    """Return the readings that are finite numbers of these series: _ORDER and `value`."""
    codes = np.array([*map(ROLES.index, roles.values()), -1], np.int8)
    role = codes[series_places(batch, roles)]
    dtype = batch.column("dtype").to_numpy()
    value = numbers_of(batch)
    there = (role >= 0) & np.isfinite(value) & np.isin(dtype, (FLOAT64, INT64, UINT64))
    names = ("time_ns", "seq", "index", "epoch")
    cells = {
        "device": batch.column("device").cast(pa.string()),
        "role": pa.array(role),
        **{name: batch.column(name) for name in names},
        "lane": batch.column("lane").cast(pa.string()),
        "value": pa.array(value),
    }
    return pa.table(cells).filter(pa.array(there))


def _by_hour(rows: pa.Table) -> dict[str, dict[int, dict[Role, Series]]]:
    """Return readings by device, hour, and role: of each time the last."""
    rows = rows.sort_by([(name, "ascending") for name in _ORDER]).combine_chunks()
    if not rows.num_rows:
        return {}
    device = rows.column("device").combine_chunks().dictionary_encode()
    codes, names = device.indices.to_numpy(), device.dictionary.to_pylist()
    time_ns, role = rows.column("time_ns").to_numpy(), rows.column("role").to_numpy()
    last = np.append(_differ(codes, role, time_ns), True)
    codes, role, time_ns = codes[last], role[last], time_ns[last]
    value = rows.column("value").to_numpy()[last]
    hour = np.floor_divide(time_ns, HOUR_NS)
    edges = [0, *(np.flatnonzero(_differ(codes, role, hour)) + 1).tolist(), len(hour)]
    found: dict[str, dict[int, dict[Role, Series]]] = {}
    for start, end in pairwise(edges):
        of = found.setdefault(names[codes[start]], {}).setdefault(int(hour[start]), {})
        of[ROLES[role[start]]] = time_ns[start:end], value[start:end]
    return found


def _differ(*keys: Ints | NDArray[np.int8]) -> Flags:
    """Return whether each row but the last differs from the next one in a key."""
    found: Flags = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
    return found


def cut(stretches: Sequence[Stretch], size: int) -> Iterator[tuple[Stretch, ...]]:
    """Yield the stretches in parts of about `size` hours."""
    part: list[Stretch] = []
    for each in stretches:
        if part and sum(len(one.hours) for one in part) + len(each.hours) > size:
            yield tuple(part)
            part = []
        part.append(each)
    if part:
        yield tuple(part)

"""Compute the hours that are due, in as many goes of tasks as it takes until nothing changes any more. Driver side."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from deltalake import DeltaTable

from backhaul_spark.arrays import Ints
from backhaul_spark.places.chain import HourChain
from backhaul_spark.places.crossings import Fence
from backhaul_spark.places.fold import VehicleFold
from backhaul_spark.places.row_table import Recomputed, complete
from backhaul_spark.places.settings import PlacesSettings
from backhaul_spark.places.stored import Stored
from backhaul_spark.places.tasks import STATES, FoldHours, Stretch, cut
from backhaul_spark.rollup.plan import paths_within
from backhaul_spark.rollup.rollup import Task

# Hours of devices that one task takes on at a time.
TASK_HOURS = 1 << 10


class Folding:
    """The tables of points and states as loaded, and the way to rows."""

    def __init__(
        self,
        points: DeltaTable,
        states: DeltaTable,
        run_tasks: Callable[[Sequence[Task]], list[pa.Table]],
        settings: PlacesSettings,
        fences: tuple[Fence, ...],
    ) -> None:
        self._points, self._states, self._run_tasks = points, states, run_tasks
        self._settings, self._fences = settings, fences

    def fold(
        self, files: pa.Table, due: Mapping[str, Collection[int]], ingest: int
    ) -> tuple[list[HourChain], Recomputed]:
        """Return the chain of each device, computed to its end, and the rows of all.

        `files`: of points, as of files_of; `due`: by device the touched hours. Readings of ingests after `ingest` are left out.
        """
        stored = Stored(self._states, due)
        chains = [HourChain(device, hours) for device, hours in sorted(due.items())]
        done = Recomputed(rows=defaultdict(list))
        while running := [each for each in chains if each.at is not None]:
            self._go(running, stored, files, ingest, done)
        for each in chains:
            last = max(each.states)
            if next(stored.after(each.device, last + 1), None) is None:
                done.ends.add(each.device)
                rows = VehicleFold.of(each.states[last]).open_rows(self._settings)
                for table, row in rows:
                    self._add(done, table, each.device, None, row)
            done.hours[each.device] = set(each.states)
        return chains, done

    def _go(
        self,
        chains: Sequence[HourChain],
        stored: Stored,
        files: pa.Table,
        ingest: int,
        done: Recomputed,
    ) -> None:
        asked = {each.device: each.at for each in chains if each.lacks and each.at is not None}
        before = stored.before(asked)
        stretches = [
            each.stretch(stored.after(each.device, each.at or 0), before.get(each.device))
            for each in chains
        ]
        uri = self._points.table_uri
        old = files.filter(pc.field("first_ingest") <= ingest)
        tasks = [
            FoldHours(
                uri, paths_within(old, _hours(part)), ingest, part, self._settings, self._fences
            )
            for part in cut(stretches, TASK_HOURS)
        ]
        states: defaultdict[str, dict[int, str]] = defaultdict(dict)
        for found in self._run_tasks(tasks):
            for row in found.to_pylist():
                device, hour, table, body = row["device"], row["hour"], row["table"], row["body"]
                if table == STATES:
                    states[device][hour] = body
                else:
                    self._add(done, table, device, hour, msgspec.json.decode(body))
        for each, stretch in zip(chains, stretches, strict=True):
            each.take(states[each.device], stored.after(each.device, stretch.hours[-1][0]))

    def _add(
        self, done: Recomputed, table: str, device: str, closed: int | None, said: dict[str, object]
    ) -> None:
        resolution = self._settings.cell_resolution
        done.rows[table].append(complete(table, device, closed, said, resolution))


def _hours(stretches: Sequence[Stretch]) -> Ints:
    return np.unique([hour for each in stretches for hour, _, _ in each.hours])

"""Bring trips, stops and fences up to date: exactly the hours that positions have come into since the last time.

Like a rollup: every point carries the number of its ingest, and the table `place_states` remembers, in the commit
that ends a round, up to which one was looked. An hour that is computed again begins with the stored state after
the hour before it, and where its own state is another one than it was, the hour after it is computed again, too.

Order of a round, and what a crash after each step leaves behind:

1. hours are computed                       nothing
2. the run takes a number, and voids the    the next run computes them again: a voided hour counts as
   states of untouched hours that change    touched
3. trips, stops, fences commit, each with   the next run computes the same hours, and finds their rows there
   its former rows
4. the states commit                        all of it has happened
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from backhaul_runtime.clock import Clock
from backhaul_spark.places.crossings import Fence
from backhaul_spark.places.folding import Folding
from backhaul_spark.places.row_table import RowTable
from backhaul_spark.places.settings import PlacesSettings, digest_of
from backhaul_spark.places.stored import (
    PLACES_APP,
    RUN_APP,
    SETTINGS_APP,
    VOID,
    put,
    void_hours,
)
from backhaul_spark.places.tasks import HOUR_NS
from backhaul_spark.rollup.plan import files_of, first_window, touched_since
from backhaul_spark.rollup.rollup import Round, Task
from backhaul_spark.rollup.tasks import Touch
from backhaul_spark.tables.delta import (
    commit_files,
    committed_ingest,
    make_table,
    one_at_a_time,
    open_table,
)
from backhaul_spark.tables.files import data_files
from backhaul_spark.tables.schemas import (
    FENCES_TABLE,
    PLACE_STATES_TABLE,
    POINTS_TABLE,
    STOPS_TABLE,
    TRIPS_TABLE,
)
from backhaul_spark.tables.superseded import STAMP_APP, next_stamp_us

# Hours of devices that one commit takes on at most; a state is about 2 KB.
ROUND_HOURS = 1 << 16
SPECS = (TRIPS_TABLE, STOPS_TABLE, FENCES_TABLE)


@dataclass(frozen=True, slots=True)
class PlacesRun(Round):
    """The result of one run: rows of all three tables; `too_late` counts hours of devices.

    `withdrawn` rows are no more; `anew`: all of it was computed anew, as settings or fences are others.
    """

    withdrawn: int = 0
    anew: bool = False


class Places:
    """One restatement of trips, stops and fences under a table root.

    Args:
        runner: runs tasks and returns their tables, in order (`rollup.run_here`, `rollup.run_on`).
        after: called with the name of each step when it is done; tests end the process there.

    Raises:
        TableMissingError: nothing was ever ingested.
        TablesBusyError: another run is at work.
    """

    def __init__(
        self,
        root: str,
        clock: Clock,
        runner: Callable[[Sequence[Task]], list[pa.Table]],
        settings: PlacesSettings,
        fences: tuple[Fence, ...] = (),
        after: Callable[[str], None] = lambda step: None,
    ) -> None:
        self._root, self._clock, self._run_tasks, self._after = root, clock, runner, after
        self._settings, self._fences = settings, fences
        self._digest = digest_of(settings, fences)
        self._touch = Touch(("device",), "hour", HOUR_NS, tuple(settings.roles()))
        self._points = open_table(root, POINTS_TABLE)
        self._states = make_table(root, PLACE_STATES_TABLE)
        with one_at_a_time(root, "places"):
            self._tables = [RowTable(root, spec, clock) for spec in SPECS]

    def run(self) -> PlacesRun:
        """Bring the tables up to date; does nothing when nothing came in.

        Raises:
            TablesBusyError: another run committed meanwhile. What is done stands; run again later.
        """
        target = committed_ingest(self._points)
        anew = self._begin_anew()
        result = self._round(target)
        while result.ingest < target:
            result = result.then(self._round(target))
        return replace(result, anew=anew)

    def _begin_anew(self) -> bool:
        """Take out the rows that other settings or fences gave; say whether there were others."""
        known = self._states.transaction_version(SETTINGS_APP)
        if known == self._digest:
            return False
        apps = {SETTINGS_APP: self._digest, PLACES_APP: 0}
        if known is None:
            commit_files(self._states, PLACE_STATES_TABLE, [], apps)
            return False
        run, at_us = self._claim({})
        with one_at_a_time(self._root, "places"):
            for table in self._tables:
                table.clear(first_window(self._points, HOUR_NS), run, at_us)
            files = data_files(self._states, PLACE_STATES_TABLE)
            actions = [file.removal(at_us * 1000) for file in files]
            commit_files(self._states, PLACE_STATES_TABLE, actions, apps | {RUN_APP: run})
        self._after("cleared")
        return True

    def _round(self, last: int) -> PlacesRun:
        done = self._states.transaction_version(PLACES_APP) or 0
        first = first_window(self._points, HOUR_NS)
        void = [(device, hour) for device, hour in void_hours(self._states) if hour >= first]
        if last <= done and not void:
            return PlacesRun(done, done)
        files = files_of(self._points)
        touched, target = self._touch.schema.empty_table(), done
        if last > done:
            how = self._run_tasks, self._touch, ROUND_HOURS
            touched, target = touched_since(self._points, files, (done, last), *how)
        kept = touched.filter(pc.field("hour") >= first)
        self._after("touched")
        due: defaultdict[str, set[int]] = defaultdict(set)
        names = (kept.column(name).to_pylist() for name in ("device", "hour"))
        for device, hour in chain(zip(*names, strict=True), void):
            due[device].add(hour)
        folding = Folding(self._points, self._states, self._run_tasks, self._settings, self._fences)
        chains, recomputed = folding.fold(files, due, target)
        self._after("folded")
        voided = {
            (each.device, hour): VOID for each in chains for hour in each.changed - due[each.device]
        }
        run, at_us = self._claim(voided)
        self._after("claimed")
        counts = np.zeros(3, int)
        with one_at_a_time(self._root, "places"):
            for table in self._tables:
                counts += table.commit(recomputed, run, target, at_us, self._after)
                self._after(table.spec.name)
            states = {
                (each.device, hour): each.states[hour] for each in chains for hour in each.changed
            }
            actions = put(self._states, states, target, at_us)
            apps = {PLACES_APP: target, RUN_APP: run, STAMP_APP: at_us}
            commit_files(self._states, PLACE_STATES_TABLE, actions, apps)
        self._after("states")
        created, restated, withdrawn = counts.tolist()
        too_late = touched.num_rows - kept.num_rows
        return PlacesRun(done, target, created, restated, too_late, withdrawn)

    def _claim(self, voided: Mapping[tuple[str, int], str]) -> tuple[int, int]:
        """Take the number of this run, so that no other one that began before can commit; return it and the time."""
        numbers = (each.table.transaction_version(RUN_APP) or 0 for each in self._tables)
        run = max(self._states.transaction_version(RUN_APP) or 0, *numbers) + 1
        at_us = next_stamp_us(self._states, self._clock)
        actions = put(self._states, voided, 0, at_us) if voided else []
        with one_at_a_time(self._root, "places"):
            commit_files(self._states, PLACE_STATES_TABLE, actions, {RUN_APP: run})
        return run, at_us

"""Where one batch of the twin job goes: alerts and commands to the hub, then both tables. Driver.

Order of a batch, and what a crash after each step leaves behind. The batch is then done again; each
step knows by itself, by what it writes and not by the batch's number, what is there already:

1. alerts are published       each under its id: stored once for as long as TWIN_EVENTS keeps it
2. commands are published     by the alert's id: the hub's command book starts each once
3. alerts go into the table   those whose id it has not got
4. twins go into the table    where they are newer; gathered for `twins_every_s`, since all of the
                              table is written anew each time

So nothing hangs on a batch being the same when it is done again: timers may have run on.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]

from backhaul_runtime.clock import Clock
from backhaul_spark.sink.alert_tables import AlertTables, newest_of_each
from backhaul_spark.sink.outgoing import alert_message, command_message
from backhaul_spark.sink.publisher import Published, Publisher
from backhaul_spark.tables.schemas import ALERTS, SNAPSHOTS

TWINS_EVERY_S = 30.0


class Written(NamedTuple):
    """The result of one batch."""

    alerts: Published = Published()
    commands: Published = Published()
    """Dropped: those that were too old to be carried out."""
    rows: int = 0
    """New in the table of alerts."""
    twins: int = 0


class Outlet:
    """The end of the twin job. One per process.

    Args:
        env: as hub.toml's `[twin] env` says; stands in all subjects.
        clock: for the age of commands, and for when twins are written.
        twins_every_s: seconds between two writes of the table of twins; 0: with each batch.
        after: called with the name of each step when it is done; tests end the process there.
    """

    def __init__(
        self,
        publisher: Publisher,
        tables: AlertTables,
        env: str,
        clock: Clock,
        *,
        twins_every_s: float = TWINS_EVERY_S,
        after: Callable[[str], None] = lambda step: None,
    ) -> None:
        self._publisher = publisher
        self._tables = tables
        self._env = env
        self._clock = clock
        self._twins_every_s = twins_every_s
        self._after = after
        # Whoever stops the query does not wait for the batch that it is at.
        self._writing = Lock()
        self._batch_id = 0
        self._waiting = SNAPSHOTS.empty_table()
        self._twins_s = clock.monotonic_s()

    def write(self, batch_id: int, alerts: pa.Table, snapshots: pa.Table) -> Written:
        """Write one batch, however often it is done; return when the hub has all of it.

        `alerts` (schema ALERTS) are in the order in which they are to be heard; `snapshots`: schema SNAPSHOTS.

        Raises:
            BackhaulSparkError: it is not all written; do it again.
        """
        with self._writing:
            return self._write(batch_id, alerts, snapshots)

    def _write(self, batch_id: int, alerts: pa.Table, snapshots: pa.Table) -> Written:
        self._batch_id = batch_id
        alerts, snapshots = alerts.cast(ALERTS), snapshots.cast(SNAPSHOTS)
        rows = alerts.to_pylist()
        published = self._publisher.publish(rows, lambda row: alert_message(self._env, row))
        self._after("alerts")
        commanded = self._publisher.publish(
            [row for row in rows if row["command"]],
            lambda row: command_message(self._env, row, self._clock.now_ns()),
        )
        self._after("commands")
        added = self._tables.add_alerts(batch_id, alerts)
        self._after("table alerts")
        self._waiting = newest_of_each(pa.concat_tables([self._waiting, snapshots]))
        twins = 0
        if self._clock.monotonic_s() - self._twins_s >= self._twins_every_s:
            twins = self.write_twins()
        self._after("table twins")
        return Written(published, commanded, added, twins)

    def write_twins(self) -> int:
        """Write those snapshots that wait; return of how many devices.

        A kill loses what waits: a device that never speaks again keeps its former row until then.
        """
        written = self._tables.put_twins(self._batch_id, self._waiting)
        self._waiting = SNAPSHOTS.empty_table()
        self._twins_s = self._clock.monotonic_s()
        return written

    def close(self) -> None:
        """Write the waiting rows, and close the connection to the hub; a batch that is being written ends first."""
        with self._writing:
            try:
                self.write_twins()
            finally:
                self._publisher.close()

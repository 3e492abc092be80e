"""A process that writes batches of the twin job through the real Outlet, until it is done or killed.

Run as `python -m`. Arguments: the hub's URL, a directory, how many batches, and the step of which batch
to die after, as in "commands 3", or "never"; or "naive", to publish without ids and append without looking;
or after how many seconds of work an alarm is to end it, wherever it is then.
Like Spark it notes a batch as done only when it is written, and does it again otherwise; and the second
time it says a little more, as timers run on.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
from deltalake import write_deltalake

from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.nats.endpoint import endpoint_from
from backhaul_spark.rules.alert import Alert, alert_table
from backhaul_spark.sink.alert_tables import AlertTables
from backhaul_spark.sink.outgoing import Outgoing, alert_message
from backhaul_spark.sink.outlet import Outlet
from backhaul_spark.sink.publisher import Publisher
from backhaul_spark.tables.schemas import SNAPSHOTS

ALERTS_EACH = 300
DEVICES = 10


def alerts_of(
    batch: int, began_ns: int, *, again: bool = False, count: int = ALERTS_EACH
) -> list[Alert]:
    """Return what a batch says; every third asks for something."""
    return [
        Alert(
            device=f"VID-{number % DEVICES:03}",
            rule="hot",
            kind="raised",
            severity="critical",
            time_ns=began_ns + batch * 1_000_000 + number,
            text="too hot",
            command="" if number % 3 else "cool_down",
            params={} if number % 3 else {"target_c": 55},
        )
        for number in range(count + 5 * again)
    ]


def snapshots_of(batch: int, began_ns: int) -> pa.Table:
    """Return a snapshot of each device, whose health says the batch."""
    blank = {field.name: "{}" if field.type == pa.string() else 0 for field in SNAPSHOTS} | {
        "at_ns": began_ns + batch,
        "health": float(batch),
    }
    rows = [blank | {"device": f"VID-{number:03}"} for number in range(DEVICES)]
    return pa.Table.from_pylist(rows, schema=SNAPSHOTS)


def write_batches(url: str, directory: Path, batches: int, die_after: str) -> None:
    """Do what the streaming query does with the batches that are not done yet."""
    done, tried = directory / "done", directory / "tried"
    began_ns = int((directory / "began_ns").read_text())
    publisher = Publisher(endpoint_from({"servers": url}))
    tables = AlertTables(str(directory / "tables"), SYSTEM_CLOCK)
    batch = int(done.read_text()) + 1 if done.exists() else 0
    outlet = Outlet(
        *(publisher, tables, "prod", SYSTEM_CLOCK),
        twins_every_s=0,
        after=lambda step: _die() if die_after == f"{step} {batch}" else None,
    )
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    if die_after[0].isdigit():
        signal.setitimer(signal.ITIMER_REAL, float(die_after))
    for batch in range(batch, batches):  # noqa: B020 - `after` is to see it
        again = tried.exists() and int(tried.read_text()) == batch
        _note(tried, batch)
        alerts = alert_table(alerts_of(batch, began_ns, again=again))
        if die_after == "naive":
            _write_naively(publisher, directory, alerts)
        else:
            outlet.write(batch, alerts, snapshots_of(batch, began_ns))
        _note(done, batch)
    outlet.close()


def _write_naively(publisher: Publisher, directory: Path, alerts: pa.Table) -> None:
    """Write a batch as one would that thinks of no crash: at least once."""
    rows = alerts.to_pylist()
    publisher.publish(rows, lambda row: alert_message("prod", row)._replace(header=b""))
    publisher.publish(
        [row for row in rows if row["command"]],
        lambda row: Outgoing(f"fleet.prod.veh.{row['device']}.cmd.cool_down", b"", b"{}"),
    )
    write_deltalake(str(directory / "tables" / "naive"), alerts, mode="append")


def _note(path: Path, batch: int) -> None:
    partial = path.with_suffix(".new")
    partial.write_text(str(batch))
    partial.replace(path)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    write_batches(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])

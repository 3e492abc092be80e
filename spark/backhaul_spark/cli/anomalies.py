"""`backhaul-spark anomalies`: Compare every device with its peers and its own past."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import date
from typing import TYPE_CHECKING, Any

import click

from backhaul_codec.state.point_text import shown
from backhaul_spark.cli import _options

if TYPE_CHECKING:
    from backhaul_spark.fleet.job import Done

SHOWN = 20


@click.command()
@_options.table_root
@click.option("--day", help="The day, such as 2026-01-31, UTC. Without it: all days that are due.")
@click.option("--hour", type=click.IntRange(0, 23), help="Only this hour of the day.")
@_options.fleet_config
@_options.as_json
@_options.quiet
def anomalies(
    table_root: str,
    day: str | None,
    hour: int | None,
    config: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Compare every device with its peers and its own past, and write the anomalies.

    Peers are the devices of the same model and firmware. The result goes to the tables `anomalies`
    and `fleet_days`. Without --day every ended day is judged whose rollups or completeness reports have
    changed since, so that late data restates what was said of it.
    """
    from backhaul_runtime.clock import SYSTEM_CLOCK
    from backhaul_spark.fleet.job import FleetJob
    from backhaul_spark.fleet.settings import FleetSettings

    if hour is not None and day is None:
        raise click.UsageError("--hour needs --day")
    job = FleetJob(table_root, SYSTEM_CLOCK, FleetSettings.read(config))
    days = job.due() if day is None else [_options.parse_day(day)]
    results = []
    for each in days:
        _options.tell(f"judging {each}", quiet=quiet)
        done = job.run(each, hour)
        rows = _rows(table_root, each, hour)
        results.append(asdict(done) | {"found": rows})
        if not as_json:
            _print(done, rows)
    if as_json:
        print(json.dumps(results, default=str))
    elif not days:
        print("no day has changed since it was judged")


def _rows(root: str, day: date, hour: int | None) -> list[dict[str, Any]]:
    from backhaul_spark.fleet.standing import standing

    return standing(root, day, hour)


def _print(done: Done, rows: list[dict[str, Any]]) -> None:
    when = done.day if done.hour is None else f"{done.day} {done.hour:02}:00"
    silent = f", {done.silent:,} silent" if done.silent else ""
    number = "1 anomaly" if done.anomalies == 1 else f"{done.anomalies:,} anomalies"
    print(f"{when}: {done.devices:,} devices{silent}, {number}")
    for row in rows[:SHOWN]:
        of = row["device"] or f"model {row['model']}, firmware {row['firmware']}"
        # What vehicles call themselves may hold signs that a terminal obeys.
        print(f"  {row['rank']:>3}  {row['kind']:<8} {shown(of)}: {shown(row['text'])}")
    if len(rows) > SHOWN:
        print(f"  ... {len(rows) - SHOWN:,} more (--json prints all)")
    if done.not_judged:
        print(f"  {shown(done.not_judged)}")
    if done.withdrawn:
        print(f"  {done.withdrawn:,} that were said before are withdrawn")

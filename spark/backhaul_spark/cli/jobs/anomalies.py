"""`backhaul-spark anomalies`: Compare every device with its peers and its own past."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from typing import TYPE_CHECKING, Any

import click

from backhaul_codec.state.point_text import shown
from backhaul_spark.cli import _options
from backhaul_spark.cli._options import HubPlace, Tell

if TYPE_CHECKING:
    from backhaul_spark.fleet.job import Done

SHOWN = 20


@click.command()
@_options.table_root
@click.option("--day", help="The day, such as 2026-01-31, UTC. Without it: all days that are due.")
@click.option("--hour", type=click.IntRange(0, 23), help="Only this hour of the day.")
@_options.fleet_config
@click.option(
    "--hub-dir",
    help="Tell people, too: publish the anomalies of the last two days to this hub as alerts.",
)
@_options.as_json
@_options.quiet
def anomalies(
    table_root: str,
    day: str | None,
    hour: int | None,
    config: str | None,
    hub_dir: str | None,
    as_json: bool,
    tell: Tell,
) -> None:
    """Compare every device with its peers and its own past, and write the anomalies.

    Peers are the devices of the same model and firmware. The result goes to the tables `anomalies`,
    `unjudged` and `fleet_days`. Without --day every ended day is judged whose rollups or completeness reports have
    changed since, so that late data restates what was said of it. With --hub-dir the hub tells people of the last two
    days' anomalies as it tells them of alerts; a hub that is away ends the command, and the next run tells it.
    """
    from backhaul_runtime.clock import SYSTEM_CLOCK
    from backhaul_spark.fleet.alerts import fresh_days
    from backhaul_spark.fleet.job import FleetJob
    from backhaul_spark.fleet.settings import FleetSettings
    from backhaul_spark.fleet.standing import standing, unjudged

    if hour is not None and day is None:
        raise click.UsageError("--hour needs --day")
    job = FleetJob(table_root, SYSTEM_CLOCK, FleetSettings.read(config))
    days = job.due() if day is None else [_options.parse_day(day)]
    results = []
    for each in days:
        tell(f"judging {each}")
        done = job.run(each, hour)
        rows = standing(table_root, each, hour)
        gaps = unjudged(table_root, each, hour)
        results.append(asdict(done) | {"found": rows, "unjudged": gaps})
        if not as_json:
            _print(done, rows)
    if hub_dir is not None:
        # Also what a former run judged, and could not tell: the hub keeps each once.
        recent = fresh_days(SYSTEM_CLOCK.now_ns()) if day is None else days
        _publish(HubPlace(hub_dir), table_root, sorted({*days, *recent}), hour, tell)
    if as_json:
        print(json.dumps(results, default=str))
    elif not days:
        print("no day has changed since it was judged")


def _publish(hub: HubPlace, root: str, days: Sequence[date], hour: int | None, tell: Tell) -> None:
    """Publish the anomalies of days as alerts; the hub stores each once."""
    from backhaul_runtime.clock import SYSTEM_CLOCK
    from backhaul_spark.errors import TableMissingError
    from backhaul_spark.fleet.alerts import anomaly_alerts
    from backhaul_spark.fleet.standing import all_said
    from backhaul_spark.nats.endpoint import endpoint_from
    from backhaul_spark.sink.outgoing import alert_message
    from backhaul_spark.sink.publisher import Publisher

    now_ns, alerts = SYSTEM_CLOCK.now_ns(), []
    with contextlib.suppress(TableMissingError):  # nothing was ever judged
        for day in days:
            alerts += anomaly_alerts(all_said(root, day, hour), day, hour, now_ns)
    if not alerts:
        return
    env, endpoint = hub.env(), endpoint_from(hub.source(_options.TWIN_LOGIN))
    publisher = Publisher(endpoint, tell=tell, give_up=lambda: True)
    try:
        told = publisher.publish(alerts, lambda alert: alert_message(env, alert))
    finally:
        publisher.close()
    tell(f"told the hub of {told.stored} anomalies, {told.repeats} it knew")


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

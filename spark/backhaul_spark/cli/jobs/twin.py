"""`backhaul-spark twin`: Keep a twin of each vehicle, and raise alerts."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.cli import _options, _service
from backhaul_spark.cli._options import HubPlace, Tell

if TYPE_CHECKING:
    from backhaul_spark.decode.sample_batch import Unread
    from backhaul_spark.rules.query import BatchCounts

# Of messages before compression: their points, all of wanted series, are some 600 MB of samples.
MAX_BYTES = 64 << 20


@click.command()
@_options.hub_options("UP_*,DOWN_*")
@_options.table_root
@_options.twin_config
@click.option("--trigger", default="1s", show_default=True, help="A batch every so often.")
@click.option("--env", help="As hub.toml's [twin] env says, which is the default with --hub-dir.")
@_options.max_messages(200_000)
@_options.quiet
@_options.verbose
def twin(
    hub: HubPlace,
    table_root: str,
    config: str | None,
    trigger: str,
    env: str | None,
    max_messages: int,
    tell: Tell,
    verbose: bool,
) -> None:
    """Keep a twin of each vehicle, and raise alerts by the rules of docs/twin-actor.md.

    Alerts and commands go to the hub, each once; alerts and snapshots into the tables `alerts` and
    `twins`. Runs until it is stopped; what comes meanwhile is made good at the next start.
    """
    from backhaul_spark.checkpoint import checkpoint_uri
    from backhaul_spark.nats.endpoint import endpoint_from
    from backhaul_spark.rules.config import read_plan
    from backhaul_spark.sink.alert_tables import AlertTables
    from backhaul_spark.sink.outlet import Outlet
    from backhaul_spark.sink.publisher import Publisher
    from backhaul_spark.source.jetstream_source import SourceSettings

    plan = read_plan(config)
    trigger_s = _service.seconds(trigger, "--trigger")
    source = hub.source(_options.TWIN_LOGIN)
    if not env and hub.hub_dir is None:
        raise click.UsageError("say --env, or --hub-dir, where hub.toml says it")
    env, endpoint = env or hub.env(), endpoint_from(source)
    source |= {"maxMessages": str(max_messages), "maxBytes": str(MAX_BYTES)}
    # A wrong address or login is known in a millisecond; Spark takes seconds to come to it.
    names = ", ".join(SourceSettings(source).streams()) or "no stream yet"
    rules = ", ".join(spoken.rule.name for spoken in plan.rules)
    tell(f"rules {rules} on {names}; starting Spark")
    stop = _service.stop_on_signals()
    publisher = Publisher(endpoint, tell=tell, give_up=stop.is_set)
    outlet = Outlet(publisher, AlertTables(table_root, SYSTEM_CLOCK), env, SYSTEM_CLOCK)

    def said(batch: BatchCounts) -> None:
        if batch.alerts:
            tell(f"batch {batch.batch}: {batch.alerts:,} alerts")
        for each in batch.unread:
            click.echo(passed_over(each, table_root), err=True)

    with _service.spark("backhaul-twin", verbose=verbose) as spark, closing(outlet):

        def run() -> None:
            from backhaul_spark.rules.query import TwinQuery

            place = checkpoint_uri(table_root, "twin")
            query = TwinQuery(spark, plan, source, place, outlet, SYSTEM_CLOCK, said)
            query.run(trigger_s, stop.is_set)

        _service.run_on(run, stop, tell)


def passed_over(unread: Unread, root: str) -> str:
    """Return the word on messages that no rule sees: their device, the cause, and the command for their alerts."""
    first, last = (
        datetime.fromtimestamp(ns / 1e9, UTC) for ns in (unread.first_ns, unread.last_ns)
    )
    return (
        f"{unread.device}: passed over {unread.messages:,} messages that the hub stored from "
        f"{first:%Y-%m-%d %H:%M:%S} to {last:%Y-%m-%d %H:%M:%S} UTC: it has lost the dictionary that they are packed "
        f"against (condition dictionary-missing). Once ingest has taken them up, "
        f"backhaul-spark recompute-alerts --table-root {root} --device {unread.device} gives their alerts"
    )

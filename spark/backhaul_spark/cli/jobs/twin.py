"""`backhaul-spark twin`: Keep a twin of each vehicle, and raise alerts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.cli import _options, _service

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from backhaul_spark.rules.plan import Plan
    from backhaul_spark.rules.query import BatchCounts
    from backhaul_spark.sink.outlet import Outlet

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
    hub_dir: str | None,
    servers: str | None,
    credentials: str | None,
    tls_ca: str | None,
    streams: str,
    table_root: str,
    config: str | None,
    trigger: str,
    env: str | None,
    max_messages: int,
    quiet: bool,
    verbose: bool,
) -> None:
    """Keep a twin of each vehicle, and raise alerts by the rules of docs/twin-actor.md.

    Alerts and commands go to the hub, each once; alerts and snapshots into the tables `alerts` and
    `twins`. Runs until it is stopped; what comes meanwhile is made good at the next start.
    """
    from backhaul_spark.rules.config import read_plan

    plan = read_plan(config)
    trigger_s = _service.seconds(trigger, "--trigger")
    if hub_dir and not credentials:
        credentials = _options.twin_login(hub_dir)
    source = _options.source_options(hub_dir, servers, credentials, tls_ca, streams)
    source |= {"maxMessages": str(max_messages), "maxBytes": str(MAX_BYTES)}
    env = env or _env(hub_dir)
    _run(plan, source, table_root, env, trigger_s, quiet=quiet, verbose=verbose)


def _run(
    plan: Plan,
    source: dict[str, str],
    root: str,
    env: str,
    trigger_s: float,
    *,
    quiet: bool,
    verbose: bool,
) -> None:
    from backhaul_spark.session import spark_session
    from backhaul_spark.source.jetstream_source import SourceSettings

    # A wrong address or login is known in a millisecond; Spark takes seconds to come to it.
    names = ", ".join(SourceSettings(source).streams()) or "no stream yet"
    rules = ", ".join(spoken.rule.name for spoken in plan.rules)
    _options.tell(f"rules {rules} on {names}; starting Spark", quiet=quiet)
    stop = _service.stop_on_signals()
    outlet = _outlet(source, root, env, stop, quiet=quiet)
    spark = spark_session("backhaul-twin", verbose=verbose)
    try:
        _service.run_on(
            lambda: _query(spark, plan, source, root, outlet, trigger_s, stop, quiet=quiet),
            stop,
            quiet=quiet,
        )
    finally:
        outlet.close()
        spark.stop()


def _outlet(
    source: dict[str, str], root: str, env: str, stop: _service.Stop, *, quiet: bool
) -> Outlet:
    from backhaul_spark.nats.endpoint import endpoint_from
    from backhaul_spark.sink.alert_tables import AlertTables
    from backhaul_spark.sink.outlet import Outlet
    from backhaul_spark.sink.publisher import Publisher

    endpoint = endpoint_from({key.lower(): value for key, value in source.items()})

    def tell(text: str) -> None:
        _options.tell(text, quiet=quiet)

    publisher = Publisher(endpoint, tell=tell, give_up=stop.is_set)
    return Outlet(publisher, AlertTables(root, SYSTEM_CLOCK), env, SYSTEM_CLOCK)


def _query(
    spark: SparkSession,
    plan: Plan,
    source: dict[str, str],
    root: str,
    outlet: Outlet,
    trigger_s: float,
    stop: _service.Stop,
    *,
    quiet: bool,
) -> None:
    from backhaul_spark.checkpoint import checkpoint_uri
    from backhaul_spark.rules.query import TwinQuery

    def said(batch: BatchCounts) -> None:
        if batch.alerts:
            _options.tell(f"batch {batch.batch}: {batch.alerts:,} alerts", quiet=quiet)

    query = TwinQuery(spark, plan, source, checkpoint_uri(root, "twin"), outlet, SYSTEM_CLOCK, said)
    query.run(trigger_s, stop.is_set)


def _env(hub_dir: str | None) -> str:
    """Return the fleet's name in subjects, from hub.toml."""
    if hub_dir is None:
        raise click.UsageError("say --env, or --hub-dir, where hub.toml says it")
    return _options.hub_env(Path(hub_dir) / "hub.toml")

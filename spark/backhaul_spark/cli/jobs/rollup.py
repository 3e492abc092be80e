"""`backhaul-spark rollup`: Sum up every series by minute, hour and day."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from backhaul_spark.cli import _options, _service
from backhaul_spark.cli._options import Tell


@click.command()
@_options.table_root
@_options.as_json
@_options.quiet
@_options.verbose
def rollup(table_root: str, as_json: bool, tell: Tell, verbose: bool) -> None:
    """Sum up every series by minute, hour and day: count, min, max, mean, sum, first, last.

    Only windows that points have come into since the last run are computed, however late the
    points are; a window that was there before gets the next version number, and what it was is kept.
    """
    from backhaul_runtime.clock import SYSTEM_CLOCK
    from backhaul_spark.rollup.rollup import Rollup, run_on
    from backhaul_spark.tables.delta import open_table
    from backhaul_spark.tables.schemas import POINTS_TABLE

    open_table(table_root, POINTS_TABLE)  # a wrong directory is known before Spark starts
    tell("starting Spark")
    with _service.spark("backhaul-rollup", verbose=verbose) as spark:
        runner = run_on(spark)
        result = Rollup(table_root, SYSTEM_CLOCK, runner, lambda s: tell(f"windows {s}")).run()
    if as_json:
        print(json.dumps(asdict(result)))
    elif result.ingest == result.after_ingest and not result.restamped:
        print("nothing has come in since the last rollup")
    else:
        print(
            f"{result.created:,} new windows, {result.restated:,} restated, "
            f"{result.restamped:,} with another state"
        )
    if result.too_late and not as_json:
        print(
            f"{result.too_late:,} minutes came for days that retention has taken: left as they are"
        )

"""`backhaul-spark places`: Make trips, stops and crossings of fences of positions."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from backhaul_spark.cli import _options, _service
from backhaul_spark.cli._options import Tell


@click.command()
@_options.table_root
@click.option(
    "--positions",
    nargs=2,
    multiple=True,
    metavar="lat=SERIES lon=SERIES",
    help="Series of latitude and longitude, such as lat=gps.lat lon=gps.lon; again for vehicles with others.",
)
@click.option(
    "--fences",
    type=click.Path(dir_okay=False),
    envvar="BACKHAUL_FENCES",
    help="Fences: a TOML file, or GeoJSON (.geojson, .json).",
)
@_options.places_config
@_options.as_json
@_options.quiet
@_options.verbose
def places(
    table_root: str,
    positions: tuple[tuple[str, str], ...],
    fences: str | None,
    config: str | None,
    as_json: bool,
    tell: Tell,
    verbose: bool,
) -> None:
    """Make trips, stops and crossings of fences of positions: the tables trips, stops and fences.

    Only hours of vehicles that positions have come into since the last run are computed, however late these are, and
    the hours after them as far as they change. A row that was there before gets the next version number, and what it
    was is kept. Other settings or fences than at the last run compute everything anew.
    """
    from backhaul_runtime.clock import SYSTEM_CLOCK
    from backhaul_spark.places.fence_file import read_fences
    from backhaul_spark.places.job import Places
    from backhaul_spark.places.settings import PlacesSettings
    from backhaul_spark.rollup.rollup import run_on
    from backhaul_spark.tables.delta import open_table
    from backhaul_spark.tables.schemas import POINTS_TABLE

    settings = PlacesSettings.read(config, positions)
    known = read_fences(fences, settings.fence_dwell_s)
    open_table(table_root, POINTS_TABLE)  # a wrong directory is known before Spark starts
    tell("starting Spark")
    with _service.spark("backhaul-places", verbose=verbose) as spark:
        told = (settings, known, lambda step: tell(f"places {step}"))
        result = Places(table_root, SYSTEM_CLOCK, run_on(spark), *told).run()
    if as_json:
        print(json.dumps(asdict(result)))
        return
    if result.anew:
        print("settings or fences are others than at the last run: all was computed anew")
    if result.ingest == result.after_ingest:
        print("nothing has come in since the last run")
    else:
        print(
            f"{result.created:,} new trips, stops and crossings, {result.restated:,} restated, "
            f"{result.withdrawn:,} withdrawn"
        )
    if result.too_late:
        print(f"{result.too_late:,} hours came for days that retention has taken: left as they are")

"""`backhaul-spark report`: Write one HTML page about a day of the fleet."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from backhaul_spark.cli import _options


@click.command()
@_options.table_root
@click.option("--day", help="The day, such as 2026-01-31, UTC. Without it: all days that are due.")
@click.option(
    "--out", required=True, type=click.Path(file_okay=False), help="Directory for the page."
)
@click.option("--page-url", default="", help="Where the hub's pages are: the report links to them.")
@_options.fleet_config
@_options.as_json
def report(
    table_root: str, day: str | None, out: str, page_url: str, config: str | None, as_json: bool
) -> None:
    """Write one HTML page about a day of the fleet: overview, anomalies, completeness.

    The page needs nothing but itself: pictures are inside, nothing is fetched, nothing runs. The day
    must have been judged by `anomalies`. Without --day every one of the last 30 judged days gets its
    page that has none in the directory, or of which something else is said since.
    """
    from backhaul_runtime.clock import SYSTEM_CLOCK
    from backhaul_spark.fleet.settings import FleetSettings
    from backhaul_spark.page_links import PageLinks
    from backhaul_spark.report.report import Report

    links = PageLinks(page_url)
    pages = Report(table_root, SYSTEM_CLOCK, FleetSettings.read(config), links)
    days = pages.due(out) if day is None else [_options.parse_day(day)]
    for each in days:
        written = pages.write(each, out)
        if as_json:
            print(json.dumps(asdict(written)))
        else:
            size = f"{written.size_bytes / 1024:,.0f} KiB"
            print(f"{written.path}: {written.devices:,} devices, {size}")
    if not days and not as_json:
        print("every page says what stands")

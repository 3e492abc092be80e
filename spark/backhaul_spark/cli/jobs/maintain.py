"""`backhaul-spark maintain`: Make large files of small ones, drop expired rows."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from backhaul_spark.cli import _options


@click.command()
@_options.table_root
@click.option(
    "--points-days", type=click.IntRange(min=1), help="Days of points to keep; without it, all."
)
@click.option(
    "--superseded-days",
    type=click.IntRange(min=1),
    help="Days for which former versions of rollups and completeness reports are kept; without it, all.",
)
@click.option(
    "--vacuum-hours",
    type=click.IntRange(min=1),
    default=168,
    show_default=True,
    help="Hours after which files that no table refers to any more are deleted; longer than any "
    "batch, rollup or reader takes.",
)
@click.option(
    "--erase",
    "erased",
    multiple=True,
    metavar="VID",
    help="Erase all that the tables hold of this vehicle, for ever, with the files of the past that held it. "
    "Several times.",
)
@_options.as_json
def maintain(
    table_root: str,
    points_days: int | None,
    superseded_days: int | None,
    vacuum_hours: int,
    erased: tuple[str, ...],
    as_json: bool,
) -> None:
    """Make large files of small ones, drop expired rows, delete files of the past.

    Run it once a day, beside a running ingest or not; killed, it is run again. Rollups of days
    whose points are dropped stay as they are, for ever. With --erase a query that reads an older version
    of a table just then has to be run again.
    """
    from backhaul_runtime.clock import SYSTEM_CLOCK
    from backhaul_spark.jobs.maintain import Keeping, Maintenance

    keeping = Keeping(points_days, superseded_days, vacuum_hours, erased)
    done = Maintenance(table_root, SYSTEM_CLOCK).run(keeping)
    if as_json:
        print(json.dumps(asdict(done)))
        return
    for table, rows in done.removed_rows.items():
        print(f"{table}: {rows:,} rows too old, removed")
    if done.unseen_points:
        print(
            f"points: {done.unseen_points:,} more once `backhaul-spark rollup`, and `places` where it runs, have seen them"
        )
    if done.doubled_points:
        print(f"points: {done.doubled_points:,} rows of readings that stood twice, removed")
    for table, (before, after) in done.compacted.items():
        print(f"{table}: {before:,} files made {after:,}")
    for table, files in done.deleted_files.items():
        print(f"{table}: {files:,} files of the past deleted")
    for table, rows in done.erased_rows.items():
        print(f"{table}: {rows:,} rows of erased vehicles, removed")
    if erased:
        print(f"the hours of {', '.join(erased)} are erased")
    for table in done.busy:
        print(f"{table}: somebody else is at it; run again")

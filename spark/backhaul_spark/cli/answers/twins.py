"""`backhaul-spark twins [VID]`: Print the newest snapshot of each device."""

from __future__ import annotations

import click

from backhaul_spark.cli import _options
from backhaul_spark.cli._twin_text import print_twins
from backhaul_spark.errors import NothingFoundError


@click.command()
@_options.table_root
@click.argument("device", metavar="[VID]", required=False)
@_options.as_json
def twins(table_root: str, device: str | None, as_json: bool) -> None:
    """Print the newest snapshot of each device, or of VID.

    Half a minute old at most while the twin job runs, and as old as its last word where it does not.
    """
    from backhaul_spark.sink.alert_tables import twins_told as told

    found = told(table_root, device)
    if device is not None and not found.num_rows:
        raise NothingFoundError(f"the twin job has no snapshot of {device}")
    print_twins(found.to_pylist(), as_json=as_json)

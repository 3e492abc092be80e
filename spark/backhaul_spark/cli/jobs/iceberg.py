"""`backhaul-spark iceberg`: Let readers of Iceberg read the tables."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from backhaul_spark.cli import _options


@click.command()
@_options.table_root
@click.option(
    "--out",
    required=True,
    type=click.Path(file_okay=False),
    help="Directory for the catalogue and the metadata, outside of the table root.",
)
@_options.as_json
def iceberg(table_root: str, out: str, as_json: bool) -> None:
    """Let readers of Iceberg read the tables: write metadata that names their own files.

    No row is copied. Each run brings the metadata to what the tables are now; run it after ingest and rollup. Needs
    the extra `iceberg`.
    """
    from backhaul_spark.jobs.iceberg import publish

    found = publish(table_root, out)
    if as_json:
        print(json.dumps({"tables": [asdict(each) for each in found]}))
        return
    for each in found:
        print(f"{each.name:24} +{each.added} -{each.removed} files  {each.metadata}")

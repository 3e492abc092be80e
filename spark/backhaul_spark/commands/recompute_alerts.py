"""`backhaul-spark recompute-alerts`: what the rules say of the history."""

from __future__ import annotations

import json
from typing import Any

import click

from backhaul_spark.commands import _options


@click.command(name="recompute-alerts")
@_options.table_root
@click.option("--config", type=click.Path(dir_okay=False), help="twin.toml; without it defaults.")
@click.option("--device", help="One device only.")
@click.option("--from", "start", help="Stored at the hub from then on; ISO 8601, UTC by default.")
@click.option("--to", "end", help="Stored before then.")
@_options.as_json
def recompute_alerts(
    table_root: str,
    config: str | None,
    device: str | None,
    start: str | None,
    end: str | None,
    as_json: bool,
) -> None:
    """Run the rules of `twin` over the points table; nothing is published or kept.

    To see what another limit would have said, or what was said while the job did not run.
    """
    from backhaul_spark.history import parse_time
    from backhaul_spark.rules.config import read_plan
    from backhaul_spark.rules.recompute import Recompute

    table = Recompute(table_root, read_plan(config)).run(
        parse_time("--from", start), parse_time("--to", end), device
    )
    for row in table.to_pylist():
        print(json.dumps(row) if as_json else _line(row))


def _line(row: dict[str, Any]) -> str:
    from datetime import UTC, datetime

    at = datetime.fromtimestamp(row["time_ns"] / 1e9, UTC)
    late = " (late)" if row["late"] else ""
    return (
        f"{at:%Y-%m-%d %H:%M:%S} {row['device']} {row['rule']} {row['kind']}{late}: {row['text']}"
    )

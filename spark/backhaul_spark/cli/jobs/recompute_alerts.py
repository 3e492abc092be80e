"""`backhaul-spark recompute-alerts`: Run the rules of `twin` over the points table."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from backhaul_codec.state.point_text import shown
from backhaul_spark.cli import _options

if TYPE_CHECKING:
    from backhaul_spark.decode.sample_batch import HeadWord
    from backhaul_spark.rules.plan import Plan


@click.command(name="recompute-alerts")
@_options.table_root
@click.option(
    "--hub-dir",
    type=click.Path(file_okay=False),
    help="The hub's directory: thresholds that were written at the hub are asked for there.",
)
@_options.twin_config
@click.option("--device", help="One device only.")
@click.option("--from", "start", help="Stored at the hub from then on; ISO 8601, UTC by default.")
@click.option("--to", "end", help="Stored before then.")
@_options.as_json
def recompute_alerts(
    table_root: str,
    hub_dir: str | None,
    config: str | None,
    device: str | None,
    start: str | None,
    end: str | None,
    as_json: bool,
) -> None:
    """Run the rules of `twin` over the points table; nothing is published or kept.

    To see what another limit would have said, or what was said while the job did not run.
    """
    from backhaul_spark.query.history import parse_time
    from backhaul_spark.rules.config import read_plan
    from backhaul_spark.rules.recompute import Recompute

    plan, after, before = read_plan(config), parse_time("--from", start), parse_time("--to", end)
    written = _written(hub_dir, plan, device, after) if hub_dir else []
    table = Recompute(table_root, plan, written).run(after, before, device)
    for row in table.to_pylist():
        print(json.dumps(row) if as_json else _line(row))


def _written(
    hub_dir: str, plan: Plan, device: str | None, after: datetime | None
) -> list[HeadWord]:
    """Ask the hub for its config writes; say so where some of them are gone."""
    from backhaul_spark.rules.hub_heads import hub_heads

    source = _options.HubPlace(hub_dir, streams="DOWN_*").source(_options.TWIN_LOGIN)
    heads = [head for head in hub_heads(source, plan) if device in (None, head.device)]
    after_ns = 0 if after is None else int(after.timestamp() * 1e9)
    if recent := sum(head.time_ns > after_ns for head in heads):
        since = f"after {after:%Y-%m-%d %H:%M}" if after else "at some time"
        _options.tell(
            f"thresholds written at the hub {since}: {recent:,}. Each counts from then on; what the"
            " hub had written before is not kept"
        )
    return heads


def _line(row: dict[str, Any]) -> str:
    from datetime import UTC, datetime

    at = datetime.fromtimestamp(row["time_ns"] / 1e9, UTC)
    late = " (late)" if row["late"] else ""
    about = f"{at:%Y-%m-%d %H:%M:%S} {row['device']} {row['rule']} {row['kind']}{late}"
    return f"{about}: {shown(row['text'])}"

"""`backhaul-spark alerts`: Print alerts by the time that they are about, the newest last."""

from __future__ import annotations

import json
from typing import Any

import click

from backhaul_codec.state.point_text import shown
from backhaul_spark.cli import _options
from backhaul_spark.cli._twin_text import as_json_rows, utc


@click.command()
@_options.table_root
@click.option("--device", help="About this one alone.")
@click.option("--rule", help="Of this rule alone.")
@click.option("--since", help="About the time from then on; ISO 8601, UTC without an offset.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="The newest so many.",
)
@_options.as_json
def alerts(
    table_root: str,
    device: str | None,
    rule: str | None,
    since: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Print alerts by the time that they are about, the newest last.

    A late one was old news when the hub got it: the vehicle had been away.
    """
    from backhaul_spark.query.history import parse_time
    from backhaul_spark.sink.alert_tables import alerts_told as told

    found = told(table_root, since=parse_time("--since", since), device=device, rule=rule)
    shown = found.slice(max(0, found.num_rows - limit))
    if as_json:
        print(json.dumps(as_json_rows(shown.to_pylist())))
        return
    if found.num_rows > shown.num_rows:
        print(f"{found.num_rows - shown.num_rows:,} earlier ones are not shown: --limit, --since")
    for row in shown.to_pylist():
        print(_line(row))
    if not found.num_rows:
        print("no alerts")


def _line(row: dict[str, Any]) -> str:
    late = " late" if row["late"] else ""
    asked = shown(f"  -> {row['command']} {row['params']}") if row["command"] else ""
    name = f"{row['severity']}{late} {row['rule']} {row['kind']}"
    return f"{utc(row['time_ns'])}  {shown(row['device'])}  {name}: {shown(row['text'])}{asked}"

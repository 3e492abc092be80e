"""`backhaul-spark restated`: List the windows that late points have changed since a time."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from backhaul_codec.state.point_text import shown
from backhaul_spark.cli import _options
from backhaul_spark.cli._twin_text import as_json_rows

if TYPE_CHECKING:
    from backhaul_spark.rollup.known_at import WindowChange

SHOWN_ROWS = 50


@click.command()
@_options.table_root
@click.option("--since", required=True, help="ISO 8601 time; without an offset it is UTC.")
@click.option("--device", help="Only this one.")
@click.option("--width", type=click.Choice(["1m", "1h", "1d"]), help="Only windows of this width.")
@click.option("--unfinished", is_flag=True, help="Windows too that had not ended at that time.")
@_options.as_json
def restated(
    table_root: str,
    since: str,
    device: str | None,
    width: str | None,
    unfinished: bool,
    as_json: bool,
) -> None:
    """List the windows that late points have changed since a time, with old and new figures.

    For whoever copied figures at that time: these are the ones to copy again. A window that was
    not there at all then has no old figures.
    """
    from backhaul_spark.query.history import parse_time
    from backhaul_spark.rollup.known_at import restated_since

    moment = parse_time("--since", since)
    assert moment is not None
    found = restated_since(table_root, moment, device=device, width=width, unfinished=unfinished)
    if as_json:
        windows = as_json_rows([asdict(change) for change in found])
        print(json.dumps({"since": moment.isoformat(), "windows": windows}))
        return
    print(f"{len(found):,} windows changed since {moment.isoformat()}")
    for change in found[:SHOWN_ROWS]:
        print("  " + _line(change))
    if len(found) > SHOWN_ROWS:
        print(f"  ... {len(found) - SHOWN_ROWS:,} more (--json prints all)")


def _line(change: WindowChange) -> str:
    series = shown(".".join(filter(None, (change.node, change.type, change.key))))
    old = "not there" if change.old is None else _figures(change.old)
    return (
        f"{shown(change.device)} {series} {change.width} {change.window_start.isoformat()}  "
        f"{old}  ->  {_figures(change.new)}"
    )


def _figures(row: dict[str, Any]) -> str:
    if row["count"]:
        return f"n {row['count']} mean {row['mean']:g} (version {row['version']})"
    return f"n {row['count'] + row['texts']} (version {row['version']})"

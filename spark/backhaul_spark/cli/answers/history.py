"""`backhaul-spark history`: Print the values of a series over time, from the tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from backhaul_codec.state.point_text import shown
from backhaul_spark.cli import _options
from backhaul_spark.cli._options import SeriesSpan
from backhaul_spark.cli._twin_text import as_json_rows

if TYPE_CHECKING:
    from backhaul_spark.query.history import Answer

SHOWN_ROWS = 20


@click.command()
@_options.table_root
@_options.series_options
@click.option("--as-known-at", help="ISO 8601 time: what the tables said then.")
@click.option("--plot", type=click.Path(dir_okay=False), help="Write a picture here.")
@_options.fleet_config
@_options.as_json
def history(
    table_root: str,
    span: SeriesSpan,
    series: str,
    as_known_at: str | None,
    plot: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Print the values of a series over time, from the tables."""
    # Through delta-rs and not Spark: see query/history.py.
    from backhaul_spark.query.history import History, parse_series, parse_time

    answer = History(table_root).ask(
        parse_series(span.device, series),
        *span.bounds,
        span.resolution,
        parse_time("--as-known-at", as_known_at),
    )
    if plot:
        from backhaul_spark.fleet.settings import FleetSettings
        from backhaul_spark.query.plot import draw

        units = FleetSettings.read(config).units
        draw(answer, plot, units.get(str(answer.series), ""))
    if as_json:
        print(json.dumps(_as_json(answer), default=_iso))
    else:
        _print(answer, plot)


def _as_json(answer: Answer) -> dict[str, Any]:
    return {
        "device": answer.series.device,
        "series": str(answer.series),
        "resolution": answer.resolution,
        "from": answer.start,
        "to": answer.end,
        "points_without_time": answer.untimed,
        "rollups_behind": answer.rolled_up_to < answer.ingested,
        "rows": as_json_rows(_exact(answer.rows.to_pylist())),
    }


def _exact(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with integers for the doubles next to them."""
    for row in rows:
        if (whole := row.pop("whole", None)) is not None:
            row["value"] = int(whole)
    return rows


def _iso(value: Any) -> str:
    return str(value.isoformat())


def _print(answer: Answer, plot: str | None) -> None:
    rows = _exact(answer.rows.slice(0, SHOWN_ROWS).to_pylist())
    print(
        f"{shown(f'{answer.series.device} {answer.series}')}, {answer.resolution}, "
        f"{answer.rows.num_rows:,} rows from {answer.start.isoformat()} to {answer.end.isoformat()}"
    )
    for row in rows:
        print("  " + _line(row))
    if answer.rows.num_rows > SHOWN_ROWS:
        print(f"  ... {answer.rows.num_rows - SHOWN_ROWS:,} more (--json prints all)")
    if answer.untimed:
        print(f"{answer.untimed:,} points without a believable time are not among them")
    if answer.resolution != "raw" and answer.rolled_up_to < answer.ingested:
        print("newer points are not in the rollups yet: run `backhaul-spark rollup`")
    if plot:
        print(f"picture: {plot}")


def _line(row: dict[str, Any]) -> str:
    if "time" in row:
        value = shown(row["text"]) if row["value"] is None else str(row["value"])
        return f"{row['time'].isoformat(timespec='milliseconds')}  {value}"
    text = f"{row['window_start'].isoformat()}  "
    if row["count"]:
        text += (
            f"n {row['count']:<6} min {row['min']:<10g} mean {row['mean']:<10g} max {row['max']:g}"
        )
    elif row["texts"]:
        text += f"n {row['texts']:<6} last {shown(row['last_text'])}"
    return text

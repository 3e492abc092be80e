"""`backhaul-spark detect`: Find unusual readings in a series."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import click

from backhaul_codec.state.point_text import shown
from backhaul_spark.cli import _options

if TYPE_CHECKING:
    from backhaul_spark.detect.findings import UnusualStretch
    from backhaul_spark.query.history import Answer


@click.command()
@_options.table_root
@_options.series_options
@click.option(
    "--threshold",
    type=click.FloatRange(min=0, min_open=True),
    help="Score from which on a reading is told; lower tells more.",
)
@_options.as_json
def detect(
    table_root: str,
    device: str,
    series: str,
    start: str | None,
    end: str | None,
    resolution: Literal["auto", "raw", "1m", "1h", "1d"],
    threshold: float | None,
    as_json: bool,
) -> None:
    """Find unusual readings in a series, each judged by those before it.

    By minute, hour or day means are judged. It learns from --from on: the first hundred readings
    are never told.
    """
    from backhaul_spark.detect.findings import THRESHOLD, find
    from backhaul_spark.query.history import History, parse_series, parse_time

    answer = History(table_root).ask(
        parse_series(device, series),
        parse_time("--from", start),
        parse_time("--to", end),
        resolution,
    )
    times_ns, values = readings(answer)
    found = find(times_ns, values, threshold=threshold or THRESHOLD)
    if as_json:
        print(json.dumps(_as_json(answer, len(values), found)))
    else:
        _print(answer, len(values), found)


def readings(answer: Answer) -> tuple[list[int], list[float]]:
    """Return times (ns) and numbers of an answer; texts are left out."""
    names = ("time", "value") if answer.resolution == "raw" else ("window_start", "mean")
    rows = answer.rows.select(names).drop_null()
    times_us = rows.column(0).cast("timestamp[us]").cast("int64")
    return [time_us * 1000 for time_us in times_us.to_pylist()], rows.column(1).to_pylist()


def _as_json(answer: Answer, judged: int, found: list[UnusualStretch]) -> dict[str, Any]:
    return {
        "device": answer.series.device,
        "series": str(answer.series),
        "resolution": answer.resolution,
        "from": answer.start.isoformat(),
        "to": answer.end.isoformat(),
        "readings": judged,
        "findings": [
            {
                "start": _iso(finding.start_ns),
                "end": _iso(finding.end_ns),
                "worst": _iso(finding.worst_ns),
                "value": finding.value,
                "usual": finding.usual,
                "score": round(finding.score, 3),
                "text": finding.text,
            }
            for finding in found
        ],
    }


def _iso(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns / 1e9, UTC).isoformat(timespec="milliseconds")


def _print(answer: Answer, judged: int, found: list[UnusualStretch]) -> None:
    print(
        f"{answer.series.device} {answer.series}, {answer.resolution}: "
        f"{len(found)} findings in {judged:,} readings"
    )
    for finding in found:
        print(f"  {_iso(finding.start_ns)} to {_iso(finding.end_ns)}: {shown(finding.text)}")

"""`backhaul-spark detect`: Find unusual readings in a series."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import click

from backhaul_codec.state.point_text import shown
from backhaul_spark.cli import _options

if TYPE_CHECKING:
    from backhaul_spark.detect.findings import UnusualStretch
    from backhaul_spark.query.history import Answer

# Readings that are judged in about two seconds; of more, means are judged.
READINGS_MAX = 100_000
# As the detector has it (detect/detector.py): importing that takes numpy.
LEARNING = 100


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

    By minute, hour or day means are judged; by default each reading is, or minutes where there are more than
    100,000 readings, or hours. It learns from --from on: the first hundred readings are never judged.
    """
    from backhaul_spark.detect.findings import THRESHOLD, find
    from backhaul_spark.query.history import History, parse_series, parse_time

    history, asked = History(table_root), parse_series(device, series)
    bounds = parse_time("--from", start), parse_time("--to", end)
    if resolution == "auto":
        resolution = history.finest(asked, *bounds, READINGS_MAX)
    answer = history.ask(asked, *bounds, resolution)
    times_ns, values = readings(answer)
    found = find(times_ns, values, threshold=threshold or THRESHOLD)
    unjudged = not_judged(times_ns, values, answer.rows.num_rows)
    if as_json:
        print(json.dumps(_as_json(answer, len(values), found, unjudged)))
    else:
        _print(answer, len(values), found, unjudged)


@dataclass(frozen=True, slots=True)
class Unjudged:
    """Readings without a judgement: those to learn from, up to a time, NaN and infinities, and texts."""

    learning: int
    learned_ns: int | None
    not_finite: int
    texts: int

    def text(self, judged: int) -> str:
        """Say it in a line; `judged`: how many readings were."""
        parts = []
        if self.learned_ns is not None:
            last = f", to {_iso(self.learned_ns)}"
            parts.append(
                f"{self.learning:,} for learning, the first {LEARNING}{last if judged else ''}"
            )
        if self.not_finite:
            parts.append(f"{self.not_finite:,} NaN or infinite")
        if self.texts:
            parts.append(f"{self.texts:,} without a number")
        return (
            f"{judged:,} judged; not judged: {'; '.join(parts)}" if parts else f"{judged:,} judged"
        )


def not_judged(times_ns: list[int], values: list[float], rows: int) -> Unjudged:
    """Return how many of these readings, and of all rows, the detector passes over."""
    finite = [at for at, value in zip(times_ns, values, strict=True) if math.isfinite(value)]
    first = finite[:LEARNING]
    last = first[-1] if first else None
    return Unjudged(len(first), last, len(values) - len(finite), rows - len(values))


def readings(answer: Answer) -> tuple[list[int], list[float]]:
    """Return times (ns) and numbers of an answer; texts are left out."""
    names = ("time", "value") if answer.resolution == "raw" else ("window_start", "mean")
    rows = answer.rows.select(names).drop_null()
    times_us = rows.column(0).cast("timestamp[us]").cast("int64")
    return [time_us * 1000 for time_us in times_us.to_pylist()], rows.column(1).to_pylist()


def _as_json(
    answer: Answer, count: int, found: list[UnusualStretch], unjudged: Unjudged
) -> dict[str, Any]:
    return {
        "device": answer.series.device,
        "series": str(answer.series),
        "resolution": answer.resolution,
        "from": answer.start.isoformat(),
        "to": answer.end.isoformat(),
        "readings": count,
        "judged": count - unjudged.learning - unjudged.not_finite,
        "not_judged": {
            "learning": unjudged.learning,
            "learned_to": None if unjudged.learned_ns is None else _iso(unjudged.learned_ns),
            "not_finite": unjudged.not_finite,
            "without_number": unjudged.texts,
        },
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


def _print(answer: Answer, count: int, found: list[UnusualStretch], unjudged: Unjudged) -> None:
    whose = shown(f"{answer.series.device} {answer.series}")
    print(f"{whose}, {answer.resolution}: {len(found)} findings in {count:,} readings")
    print(f"  {unjudged.text(count - unjudged.learning - unjudged.not_finite)}")
    for finding in found:
        print(f"  {_iso(finding.start_ns)} to {_iso(finding.end_ns)}: {shown(finding.text)}")

"""`backhaul-spark detect`: Find unusual readings in a series."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from backhaul_codec.state.point_text import shown
from backhaul_spark.cli import _options
from backhaul_spark.cli._options import SeriesSpan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backhaul_spark.detect.findings import UnusualStretch, UnusualTogether
    from backhaul_spark.query.history import Answer

# Readings that are judged in about two seconds; of more, means are judged.
READINGS_MAX = 100_000
# As the detector has it (detect/detector.py): importing that takes numpy.
LEARNING = 100
# As the detector of several series has it (detect/joint.py).
JOINT_LEARNING = 400


@click.command()
@_options.table_root
@_options.several_series_options
@click.option(
    "--threshold",
    type=click.FloatRange(min=0, min_open=True),
    help="Score from which on a reading is told; lower tells more.",
)
@click.option(
    "--learning",
    type=click.IntRange(min=100),
    default=JOINT_LEARNING,
    show_default=True,
    help="Of several series: rows from the first on that are taken for well.",
)
@_options.as_json
def detect(
    table_root: str,
    span: SeriesSpan,
    series: tuple[str, ...],
    threshold: float | None,
    learning: int,
    as_json: bool,
) -> None:
    """Find unusual readings in a series, each judged by those before it, or in several series together.

    By minute, hour or day means are judged; by default each reading is, or minutes where there are more than
    100,000 readings, or hours. It learns from --from on: the first hundred readings are never judged.

    Several series are judged row by row, by how they went together in the first --learning rows.
    """
    if len(series) > 1:
        found = _together(table_root, span, series, threshold, learning)
    else:
        found = _alone(table_root, span, series[0], threshold)
    if as_json:
        findings = [_as_json(finding) for finding in found.findings]
        print(json.dumps(found.facts | {"findings": findings}))
        return
    whose = shown(f"{span.device} {', '.join(series)}")
    number, resolution = len(found.findings), found.facts["resolution"]
    print(f"{whose}, {resolution}: {number} findings in {found.of}")
    print(f"  {found.judged}")
    for finding in found.findings:
        print(f"  {_iso(finding.start_ns)} to {_iso(finding.end_ns)}: {shown(finding.text)}")


class DetectAnswer(NamedTuple):
    """The findings, the rest of `--json`, the number of readings in words, and the account of those judged."""

    findings: Sequence[UnusualStretch | UnusualTogether]
    facts: dict[str, Any]
    of: str
    judged: str


def _alone(table_root: str, span: SeriesSpan, series: str, threshold: float | None) -> DetectAnswer:
    """Judge one series."""
    from backhaul_spark.detect.findings import THRESHOLD, find
    from backhaul_spark.query.history import History, parse_series

    history, asked = History(table_root), parse_series(span.device, series)
    resolution = span.resolution
    if resolution == "auto":
        resolution = history.finest(asked, *span.bounds, READINGS_MAX)
    answer = history.ask(asked, *span.bounds, resolution)
    times_ns, values = readings(answer)
    found = find(times_ns, values, threshold=threshold or THRESHOLD)
    unjudged = not_judged(times_ns, values, answer.rows.num_rows)
    judged = len(values) - unjudged.learning - unjudged.not_finite
    facts = {
        "device": answer.series.device,
        "series": str(answer.series),
        "resolution": answer.resolution,
        "from": answer.start.isoformat(),
        "to": answer.end.isoformat(),
        "readings": len(values),
        "judged": judged,
        "not_judged": {
            "learning": unjudged.learning,
            "learned_to": None if unjudged.learned_ns is None else _iso(unjudged.learned_ns),
            "not_finite": unjudged.not_finite,
            "without_number": unjudged.texts,
        },
    }
    return DetectAnswer(found, facts, f"{len(values):,} readings", unjudged.text(judged))


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


def _iso(time_ns: int) -> str:
    """Return a time, ns since 1970, as text in UTC, to the millisecond."""
    return datetime.fromtimestamp(time_ns / 1e9, UTC).isoformat(timespec="milliseconds")


def _together(
    table_root: str,
    span: SeriesSpan,
    series: Sequence[str],
    threshold: float | None,
    learning: int,
) -> DetectAnswer:
    """Judge several series of one device together.

    Raises:
        OptionError: a series is named twice, or there are more than SIGNALS_MAX.
    """
    from backhaul_spark.detect.findings import TOGETHER, find_together
    from backhaul_spark.detect.joint import SIGNALS_MAX
    from backhaul_spark.errors import OptionError
    from backhaul_spark.query.history import History, parse_series

    if len(set(series)) < len(series) or len(series) > SIGNALS_MAX:
        raise OptionError("--series", " ".join(series), f"at most {SIGNALS_MAX}, each once")
    history, asked = History(table_root), [parse_series(span.device, one) for one in series]
    resolution = span.resolution
    if resolution == "auto":
        most = READINGS_MAX // len(asked)
        finest = [history.finest(one, *span.bounds, most) for one in asked]
        resolution = max(finest, key=("raw", "1m", "1h", "1d").index)
    answers = [readings(history.ask(one, *span.bounds, resolution)) for one in asked]
    found, rows, step_ns = find_together(
        series, answers, threshold=threshold or TOGETHER, learning=learning
    )
    judged = max(len(rows) - learning, 0)
    learned = _iso(rows[min(learning, len(rows)) - 1].time_ns) if rows else None
    facts = {
        "device": span.device,
        "series": list(series),
        "resolution": resolution,
        "step_s": step_ns / 1e9,
        "rows": len(rows),
        "judged": judged,
        "not_judged": {"learning": len(rows) - judged, "learned_to": learned},
    }
    told = f"{judged:,} judged; not judged: {len(rows) - judged:,} for learning"
    told += f", to {learned}" if learned is not None else ""
    return DetectAnswer(found, facts, f"{len(rows):,} rows of {step_ns / 1e9:g} s", told)


def _as_json(finding: UnusualStretch | UnusualTogether) -> dict[str, Any]:
    from backhaul_spark.detect.findings import UnusualStretch

    times_ns = {"start": finding.start_ns, "end": finding.end_ns, "worst": finding.worst_ns}
    if isinstance(finding, UnusualStretch):
        said: dict[str, Any] = {"value": finding.value, "usual": finding.usual}
    else:
        said = {"parts": {name: round(share, 3) for name, share in finding.parts.items()}}
    times = {name: _iso(time_ns) for name, time_ns in times_ns.items()}
    return times | said | {"score": round(finding.score, 3), "text": finding.text}

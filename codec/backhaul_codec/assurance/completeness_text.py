"""Show completeness reports, alike at the hub and in the history: as JSON, and as lines for people."""

import json
from typing import Any

from backhaul_codec.assurance.completeness import HourReport
from backhaul_codec.state.point_text import shown, utc

RANGES_SHOWN = 5


def to_json(report: HourReport) -> dict[str, Any]:
    """Return a completeness report as JSON has it; times in UTC, a range without an end has `high` null."""
    return {
        "hour": hour(report.hour_ns),
        "state": report.state,
        "epochs": list(report.epochs),
        "missing": [each._asdict() for each in report.missing],
        "explained": [each._asdict() | {"high": each.high or None} for each in report.explained],
        "why": report.why,
        "chain": [each._asdict() for each in report.chain],
    }


def hour(hour_ns: int) -> str:
    """Return the beginning of an hour in UTC."""
    return utc(hour_ns)[:16] + "Z"


def line(report: HourReport) -> str:
    """Return a completeness report as one line. Nothing that a terminal would obey comes out of it."""
    said = [
        *_some(
            [
                f"{each.lane} {_range(each.low, each.high)} (epoch {each.epoch}) missing"
                for each in report.missing
            ]
        ),
        *_some(
            [
                f"{each.lane} {_range(each.low, each.high)} (epoch {each.epoch}) will not come:"
                f" {_plain(each.reason)}"
                for each in report.explained
            ]
        ),
        *([report.why] if report.why else []),
    ]
    text = f"{hour(report.hour_ns)}  {report.state:<9}  {'; '.join(said)}"
    return text.rstrip()


def _some(texts: list[str]) -> list[str]:
    if len(texts) <= RANGES_SHOWN:
        return texts
    return [*texts[:RANGES_SHOWN], f"and {len(texts) - RANGES_SHOWN} ranges more"]


def _range(low: int, high: int) -> str:
    if not high:
        return f"from {low} on"
    return str(low) if low == high else f"{low}..{high}"


def _plain(text: str) -> str:
    return shown(text) if text else json.dumps(text)

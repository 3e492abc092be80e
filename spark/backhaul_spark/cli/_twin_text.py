"""Alerts and snapshots as text, and rows of tables as JSON. Pure."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from typing import Any

from backhaul_codec.state.json_values import value_to_json
from backhaul_codec.state.point_text import shown

_JSON_COLUMNS = frozenset({"params", "open_alerts", "statistics"})


def utc(time_ns: int) -> str:
    """Return a time as text, to the millisecond; as a number where no calendar has it."""
    try:
        moment = datetime.fromtimestamp(time_ns / 1e9, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{time_ns} ns"
    return f"{moment.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


def as_json_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows ready for JSON: times as text, JSON columns parsed, NaN and infinities as their names."""
    return [{name: _value(name, value) for name, value in row.items()} for row in rows]


def _value(name: str, value: Any) -> Any:
    if name in _JSON_COLUMNS:
        return json.loads(value)
    if isinstance(value, float) and not math.isfinite(value):
        return value_to_json(value)[0]
    if isinstance(value, dict):
        return {key: _value(key, each) for key, each in value.items()}
    return value.isoformat() if isinstance(value, (datetime, date)) else value


def print_twins(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    """Print snapshots: a line each, or all as JSON."""
    if as_json:
        print(json.dumps(as_json_rows(rows)))
        return
    for row in rows:
        print(_twin_line(row))


def _twin_line(row: dict[str, Any]) -> str:
    said = [f"{row['device']}  health {row['health']:.2f}  last seen {utc(row['last_seen_ns'])}"]
    if row["soc_pct"] is not None:
        said.append(f"battery {row['soc_pct']:.1f} %")
    if row["soc_rate_pct_h"] is not None:
        said.append(f"{row['soc_rate_pct_h']:+.1f} %/h")
    if open_alerts := json.loads(row["open_alerts"]):
        said.append("open: " + ", ".join(open_alerts))
    return shown("  ".join(said))

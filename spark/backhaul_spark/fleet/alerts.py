"""Anomalies as alerts, by which they reach people through the hub (docs/alerts.md). Pure.

A row that stands is `raised`, one that was withdrawn is `cleared`, each version of it once. The hub ends an anomaly of
which no further day speaks, so nothing is cleared for the absence of a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

FLEET = "fleet"
"""In place of a device, where a finding is of many."""
RULE = "anomaly."
FRESH_NS = 48 * 3600 * 1_000_000_000
"""Of a day (or hour) that ended longer ago nobody is told: it is judged again because late data came."""
_SECOND_NS = 1_000_000_000


def end_ns(day: date, hour: int | None) -> int:
    """Return when a day, or an hour of it, ends; ns since the Unix epoch."""
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
    span = timedelta(days=1) if hour is None else timedelta(hours=hour + 1)
    return int((begin + span).timestamp()) * _SECOND_NS


def fresh_days(now_ns: int) -> list[date]:
    """Return the ended days of which people are told, the oldest first."""
    today = datetime.fromtimestamp(now_ns // _SECOND_NS, UTC).date()
    days = [today - timedelta(days=back) for back in (3, 2, 1)]
    return [each for each in days if now_ns - end_ns(each, None) <= FRESH_NS]


def anomaly_alerts(
    rows: Iterable[Mapping[str, Any]], day: date, hour: int | None, now_ns: int
) -> list[dict[str, Any]]:
    """Return the alerts of one scope's rows, as rows of ALERTS; none where the scope is old at `now_ns`, ns since 1970.

    `rows`: of the table `anomalies`, those that stand and those that were withdrawn.
    """
    time_ns = end_ns(day, hour)
    if now_ns - time_ns > FRESH_NS:
        return []
    return [_alert(row, time_ns) for row in rows]


def _alert(row: Mapping[str, Any], time_ns: int) -> dict[str, Any]:
    kind = "raised" if row["state"] == "open" else "cleared"
    # Two findings of one kind about the whole fleet differ by model and firmware alone.
    names = [row["key"]] if row["device"] else [row["key"], row["model"], row["firmware"]]
    return {
        "id": f"{row['id']}:{kind}:{row['version']}",
        "device": row["device"] or FLEET,
        "rule": f"{RULE}{row['kind']}",
        "kind": kind,
        "severity": "warning",
        "time_ns": time_ns,
        "late": False,
        "node": row["node"],
        "type": row["type"],
        "key": " ".join(filter(None, names)),
        "value": row["value"],
        "limit": row["expected"],
        "unit": "",
        "text": row["text"],
        "command": "",
        "params": "",
    }

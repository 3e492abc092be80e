"""Anomalies as alerts: what stands is raised, what was withdrawn is cleared, each version once."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

from backhaul_hub.alerts.alert import word_of_alert
from backhaul_hub.twin.event_log import read_alert
from backhaul_spark.fleet.alerts import FRESH_NS, anomaly_alerts, end_ns, fresh_days
from backhaul_spark.sink.outgoing import alert_message

DAY = date(2026, 5, 1)
END_NS = 1_777_680_000_000_000_000
"""2026-05-02T00:00:00Z."""


def row(**more: Any) -> dict[str, Any]:
    known = {"id": "2026-05-01:stuck:VID-001:cabin.temp", "kind": "stuck", "device": "VID-001"}
    of = {"model": "VAN-1", "firmware": "4.2", "node": "cabin", "type": "temp", "key": ""}
    return (
        known
        | of
        | {"value": 23.2, "expected": None, "text": "sticks", "state": "open", "version": 1}
        | more
    )


def word(some: dict[str, Any]) -> Any:
    """Return what the hub reads in the message of an alert."""
    message = alert_message("prod", some)
    assert json.loads(message.body)["id"] == some["id"]
    event = read_alert(message.subject, message.body)
    assert event is not None
    return word_of_alert(event)


def test_a_day_ends_at_midnight_and_an_hour_at_its_end() -> None:
    assert (end_ns(DAY, None), end_ns(DAY, 22)) == (END_NS, END_NS - 3600 * 10**9)


def test_what_stands_is_raised_and_what_was_withdrawn_is_cleared() -> None:
    raised, cleared = anomaly_alerts([row(), row(state="withdrawn", version=2)], DAY, None, END_NS)
    assert (raised["id"][-9:], cleared["id"][-10:]) == (":raised:1", ":cleared:2")
    one, two = word(raised), word(cleared)
    assert one.key == two.key == ("anomaly", "VID-001", "anomaly.stuck", "cabin.temp")
    assert (one.raised, two.raised, one.severity, one.time_ns) == (True, False, "warning", END_NS)


def test_findings_about_many_vehicles_are_told_apart() -> None:
    some = [row(device="", kind="firmware", firmware=each) for each in ("4.1", "4.2")]
    first, second = map(word, anomaly_alerts(some, DAY, None, END_NS))
    assert first.key == ("anomaly", "", "anomaly.firmware", "cabin.temp.VAN-1 4.1")
    assert second.key != first.key


def test_of_an_old_day_nobody_is_told() -> None:
    assert anomaly_alerts([row()], DAY, None, END_NS + FRESH_NS)
    assert anomaly_alerts([row()], DAY, None, END_NS + FRESH_NS + 1) == []
    assert fresh_days(END_NS) == [date(2026, 4, 29), date(2026, 4, 30), DAY]
    assert fresh_days(END_NS + 1) == [date(2026, 4, 30), DAY]

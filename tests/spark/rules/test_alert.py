"""Alerts as rows: what names them, and what a late one does not carry."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from backhaul_spark.rules.alert import Alert, alert_table
from backhaul_spark.tables.schemas import ALERTS, SNAPSHOTS

HOT = Alert(
    device="VID-001",
    rule="temperature",
    kind="raised",
    severity="critical",
    time_ns=1_750_000_000_000_000_000,
    text="battery.temp is 71 deg C",
    value=71.0,
    limit=60.0,
    command="cool_down",
    params={"target_c": 55.0},
)


def test_an_alert_is_named_by_what_it_says_and_not_by_when_it_was_found() -> None:
    assert HOT.id == "VID-001:temperature:raised:1750000000000000000"
    assert replace(HOT, value=72.0, late=True).id == HOT.id


def test_a_table_of_alerts_has_the_schema_that_others_read() -> None:
    table = alert_table([HOT, replace(HOT, kind="cleared", value=None)])
    assert table.schema == ALERTS
    assert table.column("params")[0].as_py() == '{"target_c": 55.0}'
    assert alert_table([]).schema == ALERTS


def test_a_late_alert_carries_no_command() -> None:
    [row] = alert_table([replace(HOT, late=True)]).to_pylist()
    assert (row["command"], row["params"], row["late"]) == ("", "{}", True)


def test_every_column_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs/twin-actor.md").read_text()
    words = set(page.replace(",", " ").replace("|", " ").split())
    assert set(ALERTS.names) | set(SNAPSHOTS.names) <= words

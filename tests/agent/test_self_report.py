"""What a vehicle says of itself: what is in it, and when it is worth a question of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_agent.presence.machine import Machine
from backhaul_agent.presence.self_report import CHANGES_S_MIN, SelfReport, disk_pct
from backhaul_codec.assurance.conditions import Condition, Severity
from backhaul_codec.protocol.vehicle_report import (
    CONDITIONS_MAX,
    LINK_KINDS,
    REPORT_BYTES_MAX,
    VehicleReport,
    printable,
    read_report,
)
from tests.support.agent_clock import FakeClock

MACHINE = Machine("0123456789abcdef", "01234567", "89abcdef")


def condition(code: str, about: str = "") -> Condition:
    return Condition(code, Severity.ERROR, "", "", "", about, "", 0)


class Vehicle:
    def __init__(self) -> None:
        self.clock = FakeClock(0)
        self.shown: list[Condition] = []
        self.budget: dict[str, Any] = {
            period: {"bytes": 0, "bytes_max": 0, "kinds": dict.fromkeys(LINK_KINDS, 0)}
            for period in ("day", "month")
        }
        self.ledger: dict[str, Any] = {"bytes": 0, "bytes_max": 1000, "path": "/x/ledger.db"}
        self.report = SelfReport(
            *(self.clock, MACHINE),
            lambda: {"ledger": self.ledger, "link": {"budget": self.budget}},
            lambda: self.shown,
            lambda place: 37 if place == Path("/x") else None,
        )  # fmt: skip

    def said(self) -> VehicleReport:
        return read_report(msgspec.json.encode(self.report.make()))


def test_a_report_says_machine_version_fill_and_conditions() -> None:
    it = Vehicle()
    it.ledger["bytes"] = 815
    it.shown = [condition("disk-full"), condition("publishers-refused", "bad_json")]
    said = it.said()
    assert (said.machine, said.boot, said.run) == ("0123456789abcdef", "01234567", "89abcdef")
    assert said.version.split(".")[0].isdigit()
    assert (said.ledger_pct, said.disk_pct) == (81, 37)
    assert said.conditions == (("disk-full", ""), ("publishers-refused", "bad_json"))


def test_a_report_says_how_much_of_the_links_budget_is_used() -> None:
    it = Vehicle()
    assert it.said().budget_pct is None
    it.budget["month"] |= {"bytes": 310, "bytes_max": 1000}
    assert it.said().budget_pct == 31
    it.budget["day"] = {"bytes": 90, "bytes_max": 100}
    assert it.said().budget_pct == 90


def test_a_report_says_what_the_link_has_carried_this_month_by_kind() -> None:
    it = Vehicle()
    assert it.said().link_kb == (0, 0, 0, 0, 0)
    it.budget["month"]["kinds"] |= {"telemetry": 9_310_400, "housekeeping": 350_600}
    assert dict(zip(LINK_KINDS, it.said().link_kb, strict=True)) == {
        "telemetry": 9_310,
        "state": 0,
        "events": 0,
        "system": 0,
        "housekeeping": 351,
    }
    assert read_report(b'{"m":"0a","b":"1b","r":"2c","v":"0.2.0"}').link_kb == (), "an older agent"


def test_a_report_is_short() -> None:
    """Each byte is paid for: on a metered link it goes with each visit."""
    assert len(msgspec.json.encode(Vehicle().report.make())) <= 105


def test_a_condition_that_begins_or_ends_is_told_once_and_only_with_the_link_up() -> None:
    it = Vehicle()
    it.said()
    assert not it.report.is_due(up=True)
    it.shown = [condition("disk-full")]
    assert not it.report.is_due(up=False)
    assert not it.report.is_due(up=None)
    assert it.report.is_due(up=True)
    assert it.said().conditions == (("disk-full", ""),)
    assert not it.report.is_due(up=True)


def test_conditions_that_come_and_go_cost_a_question_now_and_then() -> None:
    it, asked = Vehicle(), 0
    for second in range(300):
        it.shown = [condition("lane-stalled", "bulk")] if second % 2 else []
        if it.report.is_due(up=True):
            it.said()
            asked += 1
        it.clock.advance(1)
    assert 300 / CHANGES_S_MIN <= asked <= 300 / CHANGES_S_MIN + 1


def test_the_worst_go_where_there_are_too_many() -> None:
    it = Vehicle()
    it.shown = [condition("leaf-store", f"S{number}") for number in range(100)]
    assert it.said().conditions == tuple(("leaf-store", f"S{n}") for n in range(CONDITIONS_MAX))


@given(about=st.text())
def test_whatever_a_condition_is_about_its_report_is_believed(about: str) -> None:
    it = Vehicle()
    it.shown = [condition("leaf-store", about)]
    assert it.said().conditions == (("leaf-store", printable(about)),)


def test_the_longest_report_is_believed() -> None:
    it = Vehicle()
    it.shown = [condition("c" * 40, "\\" * 200)] * 100
    assert len(msgspec.json.encode(it.report.make())) <= REPORT_BYTES_MAX
    assert len(it.said().conditions) == CONDITIONS_MAX


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", '{"m":"x","b":"","r":"","v":""}', '{"m":"","b":"","r":"","v":"a b"}',
     '{"m":"a\\n","b":"","r":"","v":""}', '{"m":"","b":"","r":"","v":"","c":[["a","\\n"]]}',
     '{"m":"","b":"","r":"","v":"","c":[["A",""]]}', '{"m":"","b":"","r":"","v":"","l":-1}',
     '{"m":"","b":"","r":"","v":"","c":[["a","\\u001b[31m"]]}',
     '{"m":"","b":"","r":"","v":"","c":' + str([["a", ""]] * 17).replace("'", '"') + "}",
     '{"m":"","b":"","r":"","v":"","x":"' + "y" * REPORT_BYTES_MAX + '"}'],
)  # fmt: skip
def test_what_is_no_report_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each says it in its own words
        read_report(text.encode())


@given(data=st.binary(max_size=200))
def test_nothing_else_escapes_from_a_report(data: bytes) -> None:
    try:
        read_report(data)
    except ValueError:
        return


def test_the_fill_of_a_disk(tmp_path: Path) -> None:
    assert 0 <= (disk_pct(tmp_path) or 0) <= 100
    assert disk_pct(tmp_path / "nowhere") is None

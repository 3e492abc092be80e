"""Conditions: brief ones stay hidden, shown ones do not flicker, consequences stand behind causes."""

from __future__ import annotations

import pytest

from backhaul_codec.assurance.conditions import (
    CLEAR_S,
    Conditions,
    Finding,
    Growth,
    Kind,
    Place,
    Severity,
    counts,
    page_lines,
)

CUT = Kind("cut", Severity.WARNING, "it is cut", "mend it", after_s=60)
STALLED = Kind("stalled", Severity.ERROR, "it stalls", "push it", after_s=5, depends_on=("cut",))
NOTED = Kind("noted", Severity.INFO, "noted", "nothing")
S = 1_000_000_000


def conditions(patience: float = 1.0) -> Conditions:
    return Conditions((NOTED, CUT, STALLED), patience)


def codes(it: Conditions) -> list[str]:
    return [condition.code for condition in it.shown()]


def look(it: Conditions, now_s: float, *findings: Finding) -> list[str]:
    it.note(findings, now_s, int(now_s * S))
    return codes(it)


def test_a_fault_is_shown_once_it_has_lasted_and_says_since_when() -> None:
    it = conditions()
    stalled = Finding("stalled", Place("VID-001", "bulk"), "at 7")
    assert look(it, 100, stalled) == []
    assert look(it, 104.9, stalled) == []
    assert look(it, 105, stalled._replace(detail="at 8")) == ["stalled"]
    (shown,) = it.shown()
    assert (shown.since_ns, shown.detail, shown.severity) == (100 * S, "at 8", "error")
    assert (shown.device, shown.about, shown.hint) == ("VID-001", "bulk", "push it")
    assert shown.as_json()["severity"] == "error"


def test_a_brief_fault_that_comes_again_begins_anew() -> None:
    it = conditions()
    stalled = Finding("stalled")
    look(it, 0, stalled)
    look(it, 4)
    assert look(it, 5, stalled) == []
    assert look(it, 9.9, stalled) == []
    assert look(it, 10, stalled) == ["stalled"]


def test_what_is_shown_does_not_flicker() -> None:
    it = conditions()
    assert look(it, 0, Finding("noted")) == ["noted"]
    assert look(it, CLEAR_S - 0.1) == ["noted"]
    assert look(it, CLEAR_S, Finding("noted")) == ["noted"]
    assert it.shown()[0].since_ns == 0
    assert look(it, 2 * CLEAR_S) == []


def test_a_cause_hides_its_consequences_of_the_same_device_before_it_is_shown_itself() -> None:
    it = conditions()
    cut = Finding("cut", Place("VID-001"))
    here, there = (Finding("stalled", Place(device, "bulk")) for device in ("VID-001", "VID-002"))
    look(it, 0, here, there)
    look(it, 5, here, there)
    assert [each.device for each in it.shown()] == ["VID-001", "VID-002"]
    look(it, 6, here, there, cut)
    assert [each.device for each in it.shown()] == ["VID-002"]
    assert look(it, 66, here, there, cut) == ["stalled", "cut"]


def test_a_cause_of_no_device_hides_consequences_of_all() -> None:
    it = conditions()
    assert look(it, 0, Finding("stalled", Place("VID-001"))) == []
    assert look(it, 5, Finding("stalled", Place("VID-001")), Finding("cut")) == []


def test_the_worst_come_first() -> None:
    it = conditions(0)
    found = look(it, 0, Finding("noted"), Finding("stalled", Place("b")), Finding("stalled"))
    assert found == ["stalled", "stalled", "noted"]
    assert [each.device for each in it.shown()] == ["", "b", ""]
    assert counts(it.shown()) == {"stalled": 2, "noted": 1}


def test_without_patience_all_is_shown_and_gone_at_once() -> None:
    it = conditions(0)
    assert look(it, 0, Finding("cut")) == ["cut"]
    assert look(it, 0.1) == []


def test_a_code_that_nobody_declared_is_a_defect() -> None:
    with pytest.raises(KeyError):
        look(conditions(), 0, Finding("nonsense"))


def test_growth_is_told_for_a_while_and_the_first_look_only_learns() -> None:
    growth = Growth(60)
    assert growth.lately({"UP_00": 5}, 0) == {}
    assert growth.lately({"UP_00": 7}, 10) == {"UP_00": 2}
    assert growth.lately({"UP_00": 8}, 50) == {"UP_00": 3}
    assert growth.lately({"UP_00": 8}, 109) == {"UP_00": 3}
    assert growth.lately({"UP_00": 8}, 110) == {}
    assert growth.lately({"UP_00": 0}, 111) == {}
    assert growth.lately({"UP_00": 1}, 112) == {"UP_00": 1}


def test_people_read_what_where_and_what_to_do() -> None:
    it = conditions(0)
    look(it, 1, Finding("stalled", Place("VID-001", "bulk"), "at 7"))
    lines = page_lines([each.as_json() for each in it.shown()], 6 * S)
    assert lines == [
        "error   stalled VID-001 bulk, it stalls: at 7 (for 5 s)",
        "        push it",
    ]

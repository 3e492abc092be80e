"""Which alerts are open: of rules, of health's conditions, and anomalies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_codec.assurance.conditions import Severity
from backhaul_hub.alerts.alert import TEXT_MAX, AlertKey, plain, word_of_alert
from backhaul_hub.alerts.book import LAPSES_NS, AlertBook
from backhaul_hub.errors import HubError
from backhaul_hub.twin.event_log import VehicleEvent
from tests.support.alerting import HOT, LINK, T0, S, cleared, condition, raised


def book(*words: Any, now_s: float = 0) -> AlertBook:
    some = AlertBook(10)
    for word in words:
        some.hear(word, T0 + int(now_s * S))
    return some


def names(some: AlertBook) -> list[str]:
    return [each.key.name for each in some.open.values()]


def look(
    some: AlertBook, *shown: Any, lasting: Any = (), now_s: float = 0, settled: bool = True
) -> None:
    found = {(each.code, each.device, each.about) for each in shown} | set(lasting)
    some.look(shown, found, T0 + int(now_s * S), lambda _: settled)


def test_a_rules_alert_is_open_until_it_is_cleared() -> None:
    some = book(raised(), now_s=2)
    [alert] = some.take_changed()
    assert (alert.since_ns, alert.heard_ns, alert.ended_ns) == (T0, T0 + 2 * S, 0)
    some.hear(cleared(at_s=9), T0 + 10 * S)
    [ended] = some.take_changed()
    assert (ended.id, ended.ended_ns, ended.ended_why) == (alert.id, T0 + 9 * S, "cleared")
    assert not some.open
    assert some.take_changed() == []


def test_what_is_raised_again_is_one_alert_and_the_worst_severity_stands() -> None:
    some = book(raised(severity="warning"), raised(at_s=5), raised(at_s=6, severity="info"))
    [alert] = some.open.values()
    assert (alert.severity, alert.since_ns) == ("critical", T0)


def test_a_clearing_from_before_the_raising_ends_nothing() -> None:
    some = book(raised(at_s=5), cleared(at_s=4, late=True))
    assert names(some) == ["too-hot"]


def test_a_late_word_opens_only_if_no_later_word_is_known() -> None:
    assert names(book(raised(late=True))) == ["too-hot"]
    assert names(book(cleared(at_s=8), raised(at_s=5, late=True))) == []
    assert names(book(cleared(at_s=8), raised(at_s=9, late=True))) == ["too-hot"]


def test_a_late_alert_whose_end_never_comes_lapses() -> None:
    some = book(raised(late=True), raised(LINK))
    some.expire(T0 + LAPSES_NS - 1)
    assert len(some.open) == 2
    some.expire(T0 + LAPSES_NS)
    assert names(some) == ["link-down"]
    assert [each.ended_why for each in some.take_changed() if each.ended_ns] == ["lapsed"]


def test_a_late_alert_that_is_raised_anew_is_late_no_more() -> None:
    some = book(raised(late=True), raised(at_s=3))
    some.expire(T0 + 2 * LAPSES_NS)
    assert names(some) == ["too-hot"]


def test_an_anomaly_is_over_when_no_further_day_speaks_of_it() -> None:
    key = AlertKey("anomaly", "VID-001", "anomaly.stuck", "cabin.temp")
    some = book(raised(key))
    some.hear(raised(key, at_s=86_400), T0 + 86_400 * S)
    some.expire(T0 + LAPSES_NS)
    assert names(some) == ["anomaly.stuck"]
    some.expire(T0 + 86_400 * S + LAPSES_NS)
    assert not some.open


def test_a_condition_is_open_while_it_is_shown() -> None:
    some = book()
    look(some, condition(detail="for 5 min"))
    [alert] = some.take_changed()
    assert (alert.key, alert.severity, alert.text) == (
        LINK,
        "warning",
        "the link is down: for 5 min",
    )
    look(some, condition(detail="for 9 min"), now_s=5)
    assert some.take_changed() == [], "figures that move are no news"
    look(some, now_s=10)
    assert [each.ended_why for each in some.take_changed()] == ["cleared"]


def test_a_condition_that_another_one_hides_is_not_over() -> None:
    some = book()
    look(some, condition("gap-open", severity=Severity.ERROR))
    look(some, condition(), lasting={("gap-open", "VID-001", "")})
    assert sorted(names(some)) == ["gap-open", "link-down"]
    assert {each.severity for each in some.open.values()} == {"critical", "warning"}


def test_after_a_restart_a_condition_has_time_to_be_found_again() -> None:
    some = book()
    look(some, condition())
    again = AlertBook(10)
    again.restore(some.open.values())
    look(again, settled=False)
    assert again.open == some.open
    look(again, condition(), settled=False)
    assert again.take_changed() == [], "it is the same alert, told already"
    look(again)
    assert not again.open


def test_the_book_goes_on_after_a_restart() -> None:
    some = book(raised(), cleared(at_s=5), raised(LINK))
    again = AlertBook(10)
    again.restore(some.take_changed())
    assert again.open == some.open
    again.hear(raised(at_s=4, late=True), T0)
    assert names(again) == ["link-down"]


def test_the_first_who_acknowledges_stands() -> None:
    some = book(raised())
    [id_] = some.open
    some.acknowledge(id_, "anna", "on my\nway", T0 + S)
    some.acknowledge(id_, "ben", "no, me", T0 + 2 * S)
    alert = some.open[id_]
    assert (alert.acked_by, alert.acked_ns, alert.note) == ("anna", T0 + S, "on my way")
    with pytest.raises(HubError, match="no alert 'ff' is open"):
        some.acknowledge("ff", "anna", "", T0)


def test_no_more_are_opened_than_there_is_room_for() -> None:
    some = book(*(raised(HOT._replace(device=f"VID-{number:03}")) for number in range(12)))
    assert (len(some.open), some.beyond) == (10, 2)


@given(st.text(max_size=3000), st.integers(2, 600))
def test_somebody_elses_text_is_one_line_of_bounded_length(text: str, most: int) -> None:
    line = plain(text, most)
    assert len(line) <= most
    assert line.isprintable()
    assert plain(line, most) == line


def test_what_steers_a_terminal_or_begins_a_header_is_gone() -> None:
    assert plain("a\r\nBcc: x@y\x1b[31m\u202ez\ud800", 99) == "a Bcc: x@y [31m z"


def said(**data: Any) -> VehicleEvent:
    known = {"rule": "too-hot", "kind": "raised", "severity": "critical", "late": False}
    of = {"node": "battery", "type": "temp", "key": ""}
    return VehicleEvent(
        T0, "VID-001", 0, 0, "alert", "id", {"reason": "hot", "data": known | of | data}
    )


def test_an_alert_of_the_twin_job_is_a_word() -> None:
    word = word_of_alert(said())
    assert word is not None
    assert word[:4] == (HOT, True, "critical", "hot")
    anomaly = word_of_alert(said(rule="anomaly.stuck", key="x"))
    assert anomaly is not None
    assert anomaly.key == ("anomaly", "VID-001", "anomaly.stuck", "battery.temp.x")


def test_an_alert_of_the_whole_fleet_is_of_no_vehicle() -> None:
    word = word_of_alert(said(rule="anomaly.firmware")._replace(device="fleet"))
    assert word is not None
    assert word.key.device == ""


@pytest.mark.parametrize(
    "data", [{"rule": ""}, {"rule": 5}, {"kind": "maybe"}, {"severity": "bad"}, {"severity": None}]
)
def test_what_is_no_alert_is_no_word(data: dict[str, Any]) -> None:
    assert word_of_alert(said(**data)) is None


def test_a_hostile_alert_is_bounded() -> None:
    word = word_of_alert(said(rule="r" * 9999, node="n" * 9999)._replace(said={
        "reason": "<script>" * 9999, "data": said(rule="r" * 9999).said["data"],
    }))  # fmt: skip
    assert word is not None
    assert (len(word.text), len(word.key.name)) == (TEXT_MAX, 64)


def test_the_same_matter_at_another_time_is_another_alert() -> None:
    some = book(raised(), cleared(at_s=1), raised(at_s=2))
    ids = {each.id for each in some.take_changed()}
    assert len(ids) == 2
    assert replace(next(iter(some.open.values())), id="x").key == HOT

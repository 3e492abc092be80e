"""Who is due to be told what: routes, hold, repeat, recovery, silence, acknowledgement, restarts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from backhaul_hub.alerts.alert import AlertKey, AlertRecord
from backhaul_hub.alerts.plan import NoticePlan, Routes, places_of
from backhaul_hub.alerts.silences import Silences
from backhaul_hub.errors import HubError
from tests.support.alerting import HOT, T0, S, alert, settings

GROUPS = {"VID-001": {"plant-7", "hall-1"}, "VID-002": {"depot"}}
HOUR = 3600


def places(device: str) -> list[str]:
    return [*places_of(device, lambda each: GROUPS.get(each, set()))]


class Office:
    """A plan with a clock, and what it has told."""

    def __init__(self, *routes: dict[str, Any], told: Any = None, **more: Any) -> None:
        self.silences = Silences()
        self.told: dict[str, Any] = told or {}
        self.waiting: set[tuple[str, str]] = set()
        self.plan = NoticePlan(
            Routes(settings(*routes, **more), places),
            self.silences,
            lambda id_, channel: (id_, channel) in self.waiting,
            self.told,
        )

    def at(self, now_s: float, *changed: AlertRecord) -> list[str]:
        """Return what is told now, as `channel kind name`."""
        self.plan.changed(changed)
        notices, told = self.plan.due(T0 + int(now_s * S))
        self.told |= told
        return sorted(f"{each.channel} {each.kind} {each.alert.key.name}" for each in notices)


ALL = {"channels": ["a"]}


def over(some: AlertRecord, at_s: float) -> AlertRecord:
    return replace(some, ended_ns=T0 + int(at_s * S), ended_why="cleared")


def acked(some: AlertRecord) -> AlertRecord:
    return replace(some, acked_ns=T0, acked_by="anna")


def test_an_alert_is_told_after_its_hold_time_and_its_end_too() -> None:
    office, hot = Office(ALL), alert()
    assert office.at(0, hot) == []
    assert office.at(59.9) == []
    assert office.at(60) == ["a raised too-hot"]
    assert office.at(61) == []
    assert office.at(70, over(hot, 70)) == ["a over too-hot"]
    assert office.at(99_999) == []


def test_an_alert_that_is_over_before_its_hold_time_is_told_nobody() -> None:
    office, hot = Office(ALL), alert()
    office.at(0, hot)
    assert office.at(30, over(hot, 30)) == []
    assert office.at(60) == []


def test_it_is_told_again_until_somebody_acknowledges_it() -> None:
    office, hot = Office(ALL | {"repeat_s": 100.0}), alert()
    office.at(0, hot)
    assert office.at(60) == ["a raised too-hot"]
    assert office.at(159) == []
    assert office.at(160) == ["a repeated too-hot"]
    assert office.at(170, acked(hot)) == []
    assert office.at(9999) == []
    assert office.at(9999, over(acked(hot), 9999)) == ["a over too-hot"]


def test_each_notice_has_a_name_of_its_own() -> None:
    office, hot = Office(ALL | {"repeat_s": 1.0, "hold_s": 0.0}), alert()
    office.plan.changed([hot])
    ids = [each.id for now_s in range(5) for each in office.plan.due(T0 + now_s * S)[0]]
    office.plan.changed([over(hot, 9)])
    ids += [each.id for each in office.plan.due(T0 + 9 * S)[0]]
    assert len(set(ids)) == len(ids) == 6
    assert ids[0] == f"{hot.id}.1.a"


def test_what_a_failing_channel_has_not_been_told_yet_is_not_repeated() -> None:
    office, hot = Office(ALL | {"repeat_s": 10.0, "hold_s": 0.0}), alert()
    assert office.at(0, hot) == ["a raised too-hot"]
    office.waiting = {(hot.id, "a")}
    assert office.at(10) == office.at(20) == []
    office.waiting = set()
    assert office.at(30) == ["a repeated too-hot"]


def test_without_repetition_it_is_told_once() -> None:
    office = Office(ALL | {"repeat_s": 0.0, "hold_s": 0.0})
    assert office.at(0, alert()) == ["a raised too-hot"]
    assert office.at(999_999) == []


def test_a_route_may_leave_the_end_out() -> None:
    office, hot = Office(ALL | {"recovery": False, "hold_s": 0.0}), alert()
    assert office.at(0, hot) == ["a raised too-hot"]
    assert office.at(5, over(hot, 5)) == []


@pytest.mark.parametrize(
    ("route", "fits"),
    [
        ({}, True),
        ({"severity": "critical"}, True),
        ({"groups": ["plant-7"]}, True),
        ({"groups": ["depot"]}, False),
        ({"groups": ["depot", "VID-001"]}, True),
        ({"groups": ["fleet"]}, True),
        ({"sources": ["rule"]}, True),
        ({"sources": ["health", "anomaly"]}, False),
        ({"names": ["too-*"]}, True),
        ({"names": ["too-cold"]}, False),
    ],
)
def test_a_route_takes_groups_severities_sources_and_names(
    route: dict[str, Any], fits: bool
) -> None:
    office = Office(ALL | {"hold_s": 0.0} | route)
    assert bool(office.at(0, alert())) is fits


def test_a_route_of_a_severity_takes_no_lesser_one() -> None:
    office = Office(ALL | {"hold_s": 0.0, "severity": "critical"})
    assert office.at(0, alert(severity="warning")) == []
    assert Office(ALL | {"hold_s": 0.0}).at(0, alert(severity="info")) == [], "warning by default"


def test_an_alert_of_no_vehicle_goes_over_routes_without_groups_alone() -> None:
    own = alert(AlertKey("health", "", "jetstream-silent", ""))
    assert Office(ALL | {"hold_s": 0.0, "groups": ["plant-7"]}).at(0, own) == []
    assert Office(ALL | {"hold_s": 0.0}).at(0, own) == ["a raised jetstream-silent"]


def test_of_the_routes_to_a_channel_the_first_that_fits_decides() -> None:
    first = {"channels": ["a"], "groups": ["plant-7"], "hold_s": 5.0}
    office = Office(first, {"channels": ["a", "b"], "hold_s": 0.0})
    other = alert(HOT._replace(device="VID-002"))
    assert office.at(0, alert(), other) == [
        "a raised too-hot",
        "b raised too-hot",
        "b raised too-hot",
    ]
    assert office.at(5) == ["a raised too-hot"]


def test_a_worse_alert_reaches_those_who_hear_of_worse_ones() -> None:
    office = Office(ALL | {"hold_s": 0.0, "severity": "critical"})
    hot = alert(severity="warning")
    assert office.at(0, hot) == []
    assert office.at(1, replace(hot, severity="critical")) == ["a raised too-hot"]


def test_in_a_silence_nobody_is_told_and_behind_it_they_are() -> None:
    office, hot = Office(ALL | {"hold_s": 0.0}), alert()
    office.silences.begin("plant-7", "too-*", 100, "anna", "", T0)
    assert office.at(0, hot) == []
    assert office.at(99) == []
    assert office.at(100) == ["a raised too-hot"]


def test_a_silence_of_others_does_not_count() -> None:
    office = Office(ALL | {"hold_s": 0.0})
    office.silences.begin("depot", "", 100, "anna", "", T0)
    office.silences.begin("fleet", "too-cold", 100, "anna", "", T0)
    assert office.at(0, alert()) == ["a raised too-hot"]


def test_the_end_of_what_was_told_is_told_in_a_silence_too() -> None:
    office, hot = Office(ALL | {"hold_s": 0.0}), alert()
    assert office.at(0, hot) == ["a raised too-hot"]
    office.silences.begin("fleet", "", 100, "anna", "", T0)
    assert office.at(5, over(hot, 5)) == ["a over too-hot"]
    again = alert(at_s=6)
    assert office.at(6, again) == office.at(7, over(again, 7)) == []


def test_a_silence_that_is_ended_or_begun_counts_at_once() -> None:
    office, hot = Office(ALL | {"repeat_s": 10.0, "hold_s": 0.0}), alert()
    silence = office.silences.begin("VID-001", "", 100, "anna", "", T0)
    assert office.at(0, hot) == []
    office.silences.end(silence.id, "ben", T0 + S)
    office.plan.look_again()
    assert office.at(1) == ["a raised too-hot"]
    assert office.silences.now(T0 + S) == []
    with pytest.raises(HubError, match="no silence 1 holds"):
        office.silences.end(silence.id, "ben", T0 + S)


@pytest.mark.parametrize("for_s", [0, -1, 31 * 86_400])
def test_a_silence_has_an_end(for_s: float) -> None:
    with pytest.raises(HubError, match="30 days"):
        Silences().begin("fleet", "", for_s, "anna", "", T0)


def test_a_restart_tells_nothing_twice_and_forgets_no_end() -> None:
    office, hot = Office(ALL | {"repeat_s": 100.0}), alert()
    office.at(0, hot)
    office.at(60)
    again = Office(ALL | {"repeat_s": 100.0}, told=office.told)
    assert again.at(61, hot) == []
    assert again.at(160) == ["a repeated too-hot"]
    third = Office(ALL | {"repeat_s": 100.0}, told=again.told)
    assert third.at(170, over(hot, 165)) == ["a over too-hot"]
    assert third.told[hot.id] == {}


def test_a_channel_that_is_new_hears_of_what_is_open() -> None:
    office, hot = Office(ALL | {"hold_s": 0.0}), alert()
    assert office.at(0, hot) == ["a raised too-hot"]
    again = Office({"channels": ["a", "b"], "hold_s": 0.0}, told=office.told)
    assert again.at(9, hot) == ["b raised too-hot"]


def test_a_thousand_alerts_cost_nothing_while_nothing_is_due() -> None:
    office = Office(ALL | {"repeat_s": HOUR * 1.0, "hold_s": 0.0})
    some = [alert(HOT._replace(device=f"V-{number}")) for number in range(1000)]
    assert len(office.at(0, *some)) == 1000
    looked = []
    office.plan._step = lambda *each: looked.append(each)  # type: ignore[method-assign,assignment]
    assert office.at(HOUR - 1) == []
    assert looked == []

"""The link's budget: what is counted for which kind, when flushes lengthen, and when telemetry is thinned."""

from __future__ import annotations

import json

import pytest

from backhaul_agent.commit.contents import Points
from backhaul_agent.commit.participant import Draft
from backhaul_agent.errors import Code, RefusedError
from backhaul_agent.leaf.link_state import LinkTraffic
from backhaul_agent.ledger.rows import LedgerChanges, Outgoing
from backhaul_agent.link_config import LinkConfig, RoamingConfig
from backhaul_agent.metered.account import META, Files, LinkAccount
from backhaul_agent.metered.budget import (
    HOME,
    KEEP_ONE_OF_MAX,
    ROAMING,
    LinkAllowance,
    LinkBudget,
    Meter,
    kind_of,
)
from backhaul_agent.metered.roaming import Network
from backhaul_agent.metered.thinning import Sieve
from backhaul_codec import Opaque, Point, decode
from tests.agent.link_budgets import FLUSH_S, NOON_NS, account, spend
from tests.support.agent_clock import FakeClock

DAY_S = 86_400


def budget(day: int = 0, month: int = 0, *, window_s: float = 10.0) -> LinkBudget:
    """Return the budget of a vehicle that is at home."""
    allowance = LinkAllowance(day, month, 60.0)
    return LinkBudget(FLUSH_S, {HOME: allowance, ROAMING: allowance}, window_s=window_s)


class Days:
    """Lives with a budget, a second a step."""

    def __init__(self, of: LinkBudget) -> None:
        self.of = of
        self.now_s = 0.0
        self.of.step(0.0, NOON_NS)

    def live(self, seconds: int, sent_a_second: int) -> None:
        for _ in range(seconds):
            self.now_s += 1.0
            self.of.written("telemetry", sent_a_second)
            self.of.carried(sent_a_second, 0)
            self.of.step(self.now_s, NOON_NS + int(self.now_s * 1e9))


def test_what_is_sent_belongs_to_the_messages_that_wait_and_the_rest_is_housekeeping() -> None:
    of = budget()
    of.written("telemetry", 600)
    of.written("events", 200)
    of.carried(400, 50)
    day = of.usage[HOME]["day"].bytes
    assert (day["telemetry"], day["events"], day["housekeeping"]) == (300, 100, 50)
    of.carried(1000, 0)
    assert (day["telemetry"], day["events"], day["housekeeping"]) == (600, 200, 650)
    assert of.usage[HOME]["month"].total == 1450


def test_without_a_budget_nothing_changes() -> None:
    days = Days(budget())
    days.live(100, 1_000_000)
    assert (days.of.flush_s, days.of.keep_one_of, days.of.shortage) == (FLUSH_S, 1, None)


def test_a_pace_within_the_budget_changes_nothing() -> None:
    days = Days(budget(day=10_000_000))
    days.live(100, 100)  # 4.3 MB until midnight
    assert (days.of.flush_s, days.of.keep_one_of, days.of.shortage) == (FLUSH_S, 1, None)


def test_flushes_lengthen_first_and_thinning_waits_for_the_longest_one() -> None:
    days = Days(budget(day=10_000_000))
    longest_at_s = thinned_at_s = 0.0
    while not thinned_at_s:
        days.live(1, 1000)
        if days.of.flush_s == 60.0 and not longest_at_s:
            longest_at_s = days.now_s
        if days.of.keep_one_of > 1:
            thinned_at_s = days.now_s
    assert thinned_at_s - longest_at_s == 10.0
    assert days.of.shortage is not None
    assert (days.of.shortage.period, days.of.shortage.kind) == ("day", "telemetry")


def test_with_room_again_all_telemetry_is_kept_before_flushes_get_shorter() -> None:
    days = Days(budget(day=10_000_000))
    days.live(60, 1000)
    assert days.of.keep_one_of > 1
    seen = []
    for _ in range(400):
        days.live(1, 1)
        seen.append((days.of.keep_one_of, days.of.flush_s))
    assert seen[-1] == (1, FLUSH_S)
    assert all(flush_s == 60.0 for keep_one_of, flush_s in seen if keep_one_of > 1)
    assert days.of.shortage is None


def test_a_budget_that_is_spent_keeps_as_little_as_may_be() -> None:
    days = Days(budget(day=10_000))
    days.live(20, 1000)
    assert days.of.keep_one_of == KEEP_ONE_OF_MAX
    assert days.of.flush_s == 60.0


def test_telemetry_is_not_thinned_where_something_else_takes_the_link() -> None:
    of = budget(day=10_000)
    of.step(0.0, NOON_NS)
    for second in range(1, 60):
        of.written("telemetry", 50)
        of.carried(50, 950)
        of.step(float(second), NOON_NS + second * 10**9)
    assert (of.keep_one_of, of.flush_s) == (1, 60.0)
    assert of.status()["short"] == "day: housekeeping"


def test_the_month_counts_where_the_day_has_room() -> None:
    days = Days(budget(day=1_000_000_000, month=1_000_000))
    days.live(30, 1000)
    assert days.of.shortage is not None
    assert days.of.shortage.period == "month"


def test_days_and_months_are_those_of_utc() -> None:
    of = budget(day=1000, month=1000)
    of.step(0.0, NOON_NS)
    of.carried(100, 0)
    of.step(1.0, NOON_NS + 12 * 3600 * 10**9 - 1000)
    assert of.usage[HOME]["day"].total == 100
    of.step(2.0, NOON_NS + 12 * 3600 * 10**9)
    assert (of.usage[HOME]["day"].total, of.usage[HOME]["month"].total) == (0, 100)
    of.step(3.0, NOON_NS + 11 * 3600 * 10**9)  # the clock goes back: no second budget
    of.carried(7, 0)
    assert of.usage[HOME]["day"].begins == "2026-01-02"
    of.step(4.0, NOON_NS + 31 * DAY_S * 10**9)
    assert (of.usage[HOME]["day"].total, of.usage[HOME]["month"].total) == (0, 0)


def test_bytes_from_before_the_time_was_known_count_for_today() -> None:
    of = budget(day=1000)
    of.step(0.0, None)
    of.carried(100, 0)
    of.step(1.0, NOON_NS)
    assert of.usage[HOME]["day"].total == 100


def test_roaming_has_a_count_of_its_own() -> None:
    of = budget(day=1000)
    of.step(0.0, NOON_NS)
    of.carried(100, 0)
    of.enter(ROAMING)
    of.carried(30, 0)
    assert of.status()["day"]["bytes"] == 30
    of.enter(HOME)
    assert of.status()["day"]["bytes"] == 100


@pytest.mark.parametrize("kept", [{}, {"usage": 3}, {"usage": {"home": {"day": ["x", {}]}}}])
def test_what_is_no_account_is_refused_and_changes_nothing(kept: dict[str, object]) -> None:
    of = budget(day=1000)
    before = of.kept()
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        of.restore(kept)
    assert of.kept() == before


def test_a_restart_forgets_nothing() -> None:
    days = Days(budget(day=10_000_000))
    days.live(60, 1000)
    days.of.written("events", 5)
    other = budget(day=10_000_000)
    other.restore(json.loads(json.dumps(days.of.kept())))
    assert other.kept() == days.of.kept()
    assert other.keep_one_of > 1


@pytest.mark.parametrize(
    ("subject", "kind"),
    [
        ("b", "telemetry"),
        ("f.battery", "telemetry"),
        ("n.imu.f.imu", "telemetry"),
        ("p.battery.soc.%", "state"),
        ("p.up.battery", "state"),
        ("e.app.armed", "events"),
        ("r.17", "events"),
        ("e.receipt", "system"),
        ("e.mark", "system"),
        ("e.heads", "system"),
        ("d.17", "system"),
    ],
)
def test_messages_are_told_apart_by_their_subjects(subject: str, kind: str) -> None:
    assert kind_of(subject) == kind


def test_a_counter_that_begins_anew_loses_nothing() -> None:
    meter = Meter()
    assert meter.read("a", 100, 10) == (0, 0), "what was before is not ours"
    assert meter.read("a", 150, 30) == (50, 20)
    assert meter.read("a", 40, 35) == (40, 35), "the leaf server was started again"
    assert meter.read("b", 70, 50) == (70, 50), "and again, and has carried more than before"
    assert Meter(*meter.kept()).read("b", 80, 50) == (10, 0)


def points(*, live: bool = False) -> Points:
    """Return a reading."""
    return Points("imu", (Point(node="imu", type="accel", time=1, value=1.0),), live)


def test_one_message_of_several_is_kept_of_each_subject_and_state_always() -> None:
    sieve = Sieve()
    sieve.set(4)
    kept, refused = 0, set()
    for number in range(40):
        sieve.require("app.imu.mode", points(live=True))
        try:
            sieve.require(f"app.imu.accel{number % 2}", points())
            kept += 1
        except RefusedError as error:
            refused.add(error.code)
    assert refused == {Code.THINNED}
    assert (kept, sieve.thinned, sieve.told()) == (10, 30, {"imu": 30})
    assert sieve.told() == {}


def commit(of: LinkAccount, clock: FakeClock, *, fails: bool = False) -> LedgerChanges:
    """Have the account take part in a commit."""
    changes = LedgerChanges()
    draft = Draft(changes, clock.monotonic_s())
    of.contribute(draft)
    if fails:
        of.put_back(RefusedError(Code.STORAGE, "full"))
    else:
        of.committed(draft)
    return changes


def said(message: Outgoing) -> dict[str, object]:
    """Return the body of an event."""
    value = decode(message.body, node="").points[0].value
    assert isinstance(value, Opaque)
    found: dict[str, object] = json.loads(value.data)
    return found


def test_thinning_begins_once_the_hub_will_hear_of_it() -> None:
    clock = FakeClock(NOON_NS)
    of, flushes = account(clock, LinkConfig(budget_mb_day=0.1, budget_window_s=1))
    spend(of, clock, 20)
    assert flushes[-1] == 60.0
    assert of.due_s() == float("-inf")
    of.sieve.require("app.imu.accel", points())  # nobody was told yet
    commit(of, clock, fails=True)
    assert of.sieve.keep_one_of == 1
    changes = commit(of, clock)
    assert of.sieve.keep_one_of == KEEP_ONE_OF_MAX
    assert [message.subject for message in changes.messages] == ["e.thinned"]
    body = said(changes.messages[0])
    assert (body["keep_one_of"], body["reason"]) == (KEEP_ONE_OF_MAX, "link budget of the day")
    of.sieve.require("app.imu.accel", points())
    with pytest.raises(RefusedError):
        of.sieve.require("app.imu.accel", points())
    assert commit(of, clock).messages == []
    clock.advance(900)
    commit(of, clock, fails=True)
    assert said(commit(of, clock).messages[0])["nodes"] == {"imu": 1}


def test_the_ledger_remembers_the_bytes_of_the_month() -> None:
    clock = FakeClock(NOON_NS)
    link = LinkConfig(budget_mb_month=1000)
    of, _ = account(clock, link)
    spend(of, clock, 10)
    assert commit(of, clock).meta == {}, "not with every commit"
    clock.advance(60)
    meta = commit(of, clock).meta
    other, _ = account(clock, link)
    other.restore(meta)
    assert other.status()["budget"]["month"]["bytes"] == 90_000
    other.on_traffic(LinkTraffic("NA", 0, 95_000, 0, 0))  # 5 kB went while no agent ran
    assert other.status()["budget"]["month"]["bytes"] == 95_000
    for nonsense in ("", "[]", '{"meter": [], "budget": {}}', 7):
        third, _ = account(clock, link)
        third.restore({META: nonsense})
        assert third.status()["budget"]["month"]["bytes"] == 0


def test_without_a_budget_nothing_is_written() -> None:
    clock = FakeClock(NOON_NS)
    of, flushes = account(clock, LinkConfig())
    spend(of, clock, 100)
    clock.advance(3600)
    assert of.due_s() is None
    assert not commit(of, clock)
    assert flushes == []
    assert of.status()["budget"]["kinds"]["telemetry"] == 990_000


def test_another_budget_is_in_force_abroad() -> None:
    clock = FakeClock(NOON_NS)
    roaming = RoamingConfig(file="/run/modem", home_mcc=("262",), budget_mb_day=0.1)
    of, _ = account(clock, LinkConfig(budget_mb_day=1000, roaming=roaming, budget_window_s=1))
    of.take(Files(Network("wwan0", "262"), ""))
    spend(of, clock, 20)
    assert of.status()["budget"]["short"] is None
    of.take(Files(Network("wwan0", "208"), ""))
    of.step()
    of.take(Files("/run/modem: gone", ""))  # what was known last stays
    spend(of, clock, 20)
    budget_ = of.status()["budget"]
    assert (budget_["profile"], budget_["short"]) == ("roaming", "day: telemetry")
    assert budget_["error"] == "/run/modem: gone"

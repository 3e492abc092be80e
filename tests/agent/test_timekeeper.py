"""Around the clock: when the hub is told, how long stamps wait, when the hub is asked."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import backhaul_agent.time_sync.exchange as exchange_module
from backhaul_agent.config import ClockConfig, Config, DeviceConfig
from backhaul_agent.hub_time.hub_clock import HubClock, HubClockState, Quality
from backhaul_agent.time_sync.exchange import WANTED, Exchange
from backhaul_agent.time_sync.timekeeper import Patience, is_news
from backhaul_codec.protocol.vehicle_report import VehicleReport
from tests.support.agent_clock import FakeClock
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MS, S = 10**6, 10**9
NOW = 1_780_000_000 * S
SYNCED = HubClockState(Quality.SYNCED, 0, 10 * MS, "a")


@pytest.mark.parametrize(
    ("told", "now", "news"),
    [
        (None, SYNCED, True),
        (SYNCED, SYNCED, False),
        (SYNCED, SYNCED._replace(quality=Quality.HOLDOVER), True),
        (SYNCED, SYNCED._replace(boot="b"), True),
        (SYNCED, SYNCED._replace(offset_ns=110 * MS), False),
        (SYNCED, SYNCED._replace(offset_ns=-110 * MS - 1), True),
        (SYNCED, SYNCED._replace(error_ns=None), True),
        (SYNCED, SYNCED._replace(error_ns=99 * MS), False),
        (SYNCED, SYNCED._replace(error_ns=101 * MS), True),
        (SYNCED._replace(error_ns=400 * MS), SYNCED._replace(error_ns=1600 * MS), False),
        (SYNCED._replace(error_ns=400 * MS), SYNCED._replace(error_ns=1601 * MS), True),
        (SYNCED._replace(error_ns=1601 * MS), SYNCED._replace(error_ns=400 * MS), True),
    ],
)
def test_the_hub_is_told_what_matters(
    told: HubClockState | None, now: HubClockState, news: bool
) -> None:
    assert is_news(told, now) is news


@given(spells=st.lists(st.tuples(st.integers(0, 400), st.booleans())))
def test_patience_counts_the_time_with_the_link_up_only(spells: list[tuple[int, bool]]) -> None:
    patience, now_s, counted = Patience(900.0), 0.0, 0
    before = False
    assert not patience.over(now_s, waiting=False)
    for seconds, waiting in spells:
        patience.over(now_s, waiting=waiting)
        now_s += seconds
        over = patience.over(now_s, waiting=waiting)
        counted += seconds if waiting else 0
        before = before or over
        assert over == (counted >= 900)


def test_no_patience_at_all_is_over_at_once() -> None:
    assert Patience(0.0).over(5.0, waiting=False)


class Hub:
    """Stands for the connection and what is behind it: answers at once, while `up`."""

    def __init__(self, system: FakeClock) -> None:
        self.system, self.up = system, False
        self.asked: list[int] = []
        self.said: list[dict[str, Any]] = []
        self.is_closed = False
        self.cb: Any = None
        self.news = asyncio.Event()

    async def subscribe(self, subject: str, cb: Any) -> Any:
        assert subject == "clkr.VID-001.tok"
        self.cb = cb

        async def unsubscribe() -> None:
            self.cb = None

        return SimpleNamespace(unsubscribe=unsubscribe)

    async def publish(self, subject: str, payload: bytes) -> None:
        assert subject == "clk.VID-001"
        said = json.loads(payload)
        t1 = said.pop("t1")
        self.asked.append(t1)
        self.said.append(said)
        self.news.set()
        self.system.advance(0.001)
        if self.up:
            await self.say(t1=t1, t2=NOW + t1, t3=NOW + t1)

    async def say(self, **answer: object) -> None:
        await self.cb(SimpleNamespace(data=json.dumps(answer).encode()))

    async def until_asked(self, times: int) -> None:
        async with asyncio.timeout(60):
            while len(self.asked) < times:
                self.news.clear()
                await self.news.wait()


@pytest.fixture
async def asking(
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[tuple[Hub, Exchange, HubClock, list[int]]]:
    monkeypatch.setattr("backhaul_agent.time_sync.exchange.PAUSES_S", (0.001,))
    system = FakeClock(0)
    config = Config(
        device=DeviceConfig(id="VID-001", token="tok"), clock=ClockConfig(interval_s=1000)
    )
    clock, hub, answers = HubClock(system, config.clock), Hub(system), [0]
    clock.start("boot-a", [])

    def on_answer() -> None:
        answers[0] += 1

    exchange = Exchange(config, clock, on_answer)
    task = asyncio.create_task(exchange.run(hub))  # type: ignore[arg-type]
    yield hub, exchange, clock, answers
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert hub.cb is None


async def test_a_few_answers_are_asked_for_and_then_no_more(
    asking: tuple[Hub, Exchange, HubClock, list[int]],
) -> None:
    hub, exchange, clock, answers = asking
    hub.up = True
    before = len(hub.asked)
    await hub.until_asked(before + WANTED)
    assert clock.quality is Quality.SYNCED
    assert abs(clock.now_ns() - NOW - clock.steady_ns()) <= MS
    await until(lambda: exchange._idle)
    assert (len(hub.asked) - before, answers[0]) == (WANTED, WANTED)
    exchange.due()
    await hub.until_asked(before + 2 * WANTED)
    assert answers[0] == 2 * WANTED
    assert len(set(hub.asked)) == len(hub.asked)
    assert exchange.round_trip_ns == MS


async def test_what_is_to_be_learned_later_is_asked_for_at_the_next_look(
    asking: tuple[Hub, Exchange, HubClock, list[int]],
) -> None:
    """As where the hub's registry was put back, and says less of a former epoch than it had said."""
    hub, exchange, _, _ = asking
    hub.up = True
    await hub.until_asked(len(hub.asked) + WANTED)
    await until(lambda: exchange._idle, deadline_s=60)
    before = len(hub.asked)
    exchange.look()
    assert not exchange._news.is_set()
    assert len(hub.asked) == before, "there is nothing to be learned"
    owed = [[41], [41], []]
    exchange._words = SimpleNamespace(  # type: ignore[assignment]
        wanted=lambda: owed.pop(0) if len(owed) > 1 else owed[0], heard=lambda _: None
    )
    exchange.look()
    await hub.until_asked(before + 1)
    assert hub.said[before]["epochs"] == [41]


async def test_the_hub_is_told_of_lanes_that_stand_still_until_it_answers(
    asking: tuple[Hub, Exchange, HubClock, list[int]],
) -> None:
    async def until_answered(times: int) -> None:
        await until(lambda: answers[0] >= times, deadline_s=60)

    hub, exchange, _, answers = asking
    hub.up = True
    await until_answered(WANTED)
    hub.up = False
    exchange.due()
    await hub.until_asked(len(hub.asked) + 2)
    hub.system.advance(1)
    before, asked_before = len(hub.said), hub.asked[-1]
    exchange.tell(41, {"n_gps": 7})
    exchange.tell(42, {"live": 3})
    exchange.tell(42, {"bulk": 9})
    await hub.until_asked(before + 3)
    exchange.tell(42, {"bulk": 9})  # said already: what answers that will do
    await hub.say(t1=asked_before, t2=NOW + asked_before, t3=NOW + asked_before)
    await hub.until_asked(len(hub.asked) + 3)
    hub.up = True
    await until_answered(2 * WANTED)
    told = {"epoch": 42, "lanes": {"live": 3, "bulk": 9}}
    # An answer to what was asked before it was to be told is none to that.
    assert hub.said[:before] == [{}] * before
    assert hub.said[before : before + 6] == [told] * 6
    assert hub.said[-1] == {}


async def test_the_hub_is_told_of_the_vehicle_at_link_up_on_change_and_with_each_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By questions that are asked anyway; each time until one of them is answered."""
    monkeypatch.setattr("backhaul_agent.time_sync.exchange.PAUSES_S", (0.001,))
    system = FakeClock(0)
    config = Config(device=DeviceConfig(id="VID-001", token="tok"), clock=ClockConfig(interval_s=1))
    clock, hub = HubClock(system, config.clock), Hub(system)
    clock.start("boot-a", [])
    monkeypatch.setattr(exchange_module, "WANTED", 2)
    report = VehicleReport("aa", "bb", "cc", "1")
    exchange = Exchange(config, clock, lambda: None, report=lambda: report)
    exchange._interval_s = 1000.0
    task = asyncio.create_task(exchange.run(hub))  # type: ignore[arg-type]
    said = {"vehicle": {"m": "aa", "b": "bb", "r": "cc", "v": "1"}}
    try:
        await hub.until_asked(3)
        assert hub.said == [said] * len(hub.said), "until it is answered"
        before = len(hub.said)
        hub.up = True
        await until(lambda: exchange.answers == 2)
        assert hub.said[before:] in ([said, {}], [said, said, {}])  # one may have been under way
        before = len(hub.said)
        exchange.report()
        await until(lambda: exchange.answers == 3)
        assert hub.said[before:] == [said], "a change costs one question"
        exchange.due()
        await until(lambda: exchange.answers == 5)
        assert hub.said[before + 1 :] == [said, {}], "the link came up: one of those asked anyway"
        monkeypatch.setattr(exchange_module, "ROUTINE_PAUSES_S", (0.001,))
        exchange._interval_s = 0.001
        exchange.report()
        await until(lambda: len(hub.said) > before + 8)
        assert hub.said[before + 3 :] == [said] * len(hub.said[before + 3 :]), "one an interval"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_question_that_nobody_waits_for_is_repeated_later_than_others(
    asking: tuple[Hub, Exchange, HubClock, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte of an idle link is paid for: a hub that takes its time to answer is not asked twice."""
    hub, exchange, _, _ = asking
    monkeypatch.setattr(exchange_module, "ROUTINE_PAUSES_S", (1000.0,))
    exchange._interval_s = 0.001
    hub.up = True
    answered = len(hub.asked) + WANTED
    await hub.until_asked(answered)
    hub.up = False
    await hub.until_asked(answered + 1)
    await asyncio.sleep(0.02)  # long enough for another ten questions
    assert len(hub.asked) == answered + 1
    exchange.ask()
    await hub.until_asked(answered + 3)


async def test_a_hub_that_is_silent_is_asked_until_it_answers(
    asking: tuple[Hub, Exchange, HubClock, list[int]],
) -> None:
    hub, exchange, clock, _ = asking
    await hub.until_asked(20)
    assert clock.quality is Quality.UNSET
    # An answer that was long on its way counts as well, for what it is worth.
    t1 = hub.asked[-3]
    hub.system.advance(8)
    await hub.say(t1=t1, t2=NOW + t1 + S, t3=NOW + t1 + S)
    assert clock.state().quality is Quality.SYNCED
    error_ns = clock.error_ns
    assert error_ns is not None
    assert 4 * S <= error_ns < 5 * S
    assert exchange.answers == 1


async def test_what_nobody_asked_for_is_not_believed(
    asking: tuple[Hub, Exchange, HubClock, list[int]],
) -> None:
    hub, exchange, clock, answers = asking
    await hub.until_asked(1)
    t1 = hub.asked[-1]
    await hub.say(t1=t1 + 1, t2=NOW, t3=NOW)
    await hub.cb(SimpleNamespace(data=b"{"))
    await hub.say(t1=t1, t2=2**63, t3=2**63)
    await hub.say(t1=t1, t2=0, t3=0)  # a hub without a clock; this question is used up now
    await hub.say(t1=t1, t2=NOW + t1, t3=NOW + t1)
    assert exchange.garbage == 5
    assert (clock.quality, answers[0]) == (Quality.UNSET, 0)

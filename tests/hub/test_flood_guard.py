"""Acting on floods: who is kept out, when, and that nothing is heard meanwhile."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from backhaul_codec.wire.expansion import Expansion, expansion_of
from backhaul_codec.wire.messages import frame_layout
from backhaul_hub.config import Flood
from backhaul_hub.errors import HubError
from backhaul_hub.flood import guard as flood_guard
from backhaul_hub.flood.guard import LATE_NS, FloodGuard
from backhaul_hub.links.leaf_connections import Carried
from backhaul_hub.links.reset_service import ResetService
from backhaul_hub.nats.rate_limit import BURST, AnswerPace
from backhaul_runtime.clock import SystemClock
from tests.support.bombs import points_bomb
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


RUDE = "VID-666"
SETTINGS = Flood(
    questions_s_max=10,
    questions_burst=5,
    unreadable_s_max=1,
    unreadable_burst=2,
    points_s_max=1000,
    points_burst=10_000,
    expanded_s_max=1000,
    expanded_burst=200_000,
)


class HubClock(SystemClock):
    """A clock that is moved by hand."""

    s = 0.0

    def monotonic_s(self) -> float:
        return self.s


def content(message: bytes) -> tuple[Expansion, int]:
    return expansion_of(frame_layout(message, None)), len(message)


class Scene:
    """A guard, and what it has done."""

    def __init__(self) -> None:
        self.clock = HubClock()
        self.done: list[object] = []
        self.trouble = ""
        self.guard = FloodGuard(SETTINGS, self.clock, self.keep_out, self.deaf)

    async def keep_out(self, devices: frozenset[str]) -> None:
        if self.trouble:
            raise HubError(self.trouble)
        self.done.append(set(devices))

    @asynccontextmanager
    async def deaf(self) -> AsyncIterator[None]:
        self.done.append("deaf")
        try:
            yield
        finally:
            self.done.append("hears")

    def ask(self, count: int) -> int:
        return sum(self.guard.may_ask(RUDE) for _ in range(count))


async def test_who_asks_too_much_is_kept_out_for_its_time_and_not_heard_meanwhile() -> None:
    it = Scene()
    await it.guard.act()
    assert (it.ask(100), it.done) == (5, [])
    await it.guard.act()
    await it.guard.act()
    assert it.done == ["deaf", {RUDE}, "hears"], "once"
    assert it.guard.flooding() == {RUDE: "6 questions at once: kept out for 60 s more"}
    it.clock.s = 60
    await it.guard.act()
    assert it.done[3:] == [set()], "lifting it needs no silence"
    assert it.ask(1) == 1


async def test_garbage_needs_no_silence() -> None:
    it = Scene()
    for _ in range(3):
        it.guard.unreadable(RUDE)
    await it.guard.act()
    assert it.done == [{RUDE}]


async def test_what_a_link_carries_counts() -> None:
    it = Scene()
    it.guard.carried(RUDE, {1: Carried(int(SETTINGS.messages_burst) + 1)})
    await it.guard.act()
    assert it.done == [{RUDE}]


async def test_while_the_servers_do_not_take_it_it_is_tried_again() -> None:
    it = Scene()
    it.ask(100)
    it.trouble = "no server"
    with pytest.raises(HubError, match="no server"):
        await it.guard.act()
    assert it.done == ["deaf", "hears"]
    it.trouble = ""
    it.ask(1)
    await it.guard.act()
    assert it.done[2:] == ["deaf", {RUDE}, "hears"], "it asks on"


async def test_others_are_heard_while_who_was_cut_is_seen_to_again() -> None:
    """A server of a cluster is away, perhaps for hours; those that are there have cut the link."""
    it = Scene()
    it.ask(100)
    it.trouble = "2 of 3 servers answer"
    with capture_logs() as said:
        for _ in range(3):
            with pytest.raises(HubError, match="2 of 3"):
                await it.guard.act()
    assert it.done == ["deaf", "hears"], "once"
    assert [each["event"] for each in said] == ["device_floods"], "once"
    it.trouble = ""
    await it.guard.act()
    assert it.done[2:] == [{RUDE}]


async def test_what_was_begun_is_taken_back_where_its_time_is_over_before_it_succeeds() -> None:
    """A server of a cluster is away: the others keep out who they were told to."""
    it = Scene()
    it.ask(100)
    it.trouble = "2 of 3 servers answer"
    with pytest.raises(HubError, match="2 of 3"):
        await it.guard.act()
    it.trouble, it.clock.s = "", 60
    await it.guard.act()
    await it.guard.act()
    assert it.done[2:] == [set()], "once"


def test_answers_come_so_many_a_second_and_a_short_pause_is_made_up_for() -> None:
    pace = AnswerPace(100)
    waits = [pace.wait_s(50.0) for _ in range(30)]
    assert waits[:11] == pytest.approx([0.0] * 11)
    assert waits[11:] == pytest.approx([number / 100 for number in range(1, 20)])
    assert pace.wait_s(50.2) == pytest.approx(0.0)
    assert [pace.wait_s(1000.0) for _ in range(12)][-1] == pytest.approx(0.01), (
        "not the whole pause"
    )


class Api:
    """Stands for the connection: remembers what it is asked, answers when told."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.told: list[tuple[str, bytes]] = []
        self.may_answer = asyncio.Event()
        self.ask: Any = None

    async def subscribe(self, subject: str, cb: Any, pending_msgs_limit: int) -> None:
        self.ask = cb

    async def request(self, subject: str, payload: bytes, timeout: float) -> Any:  # noqa: ASYNC109 - nats-py has it
        self.asked.append(subject)
        await self.may_answer.wait()
        return SimpleNamespace(data=b"done")

    async def publish(self, subject: str, payload: bytes) -> None:
        self.told.append((subject, payload))


DURABLE = "VID-666-0123456789abcdef01234567"


async def reset(api: Api, durable: str = DURABLE, reply: str = "_R_.a.b") -> None:
    subject = f"hubapi.CONSUMER.RESET.DOWN_00.{durable}"
    await api.ask(SimpleNamespace(subject=subject, reply=reply, data=b""))
    for _ in range(5):  # the service's task, where it is not held up, and what follows it
        await asyncio.sleep(0)


async def test_a_durable_is_reset_once_at_a_time_and_not_too_often() -> None:
    api, clock = Api(), HubClock()
    service = ResetService(api, clock)  # type: ignore[arg-type]
    await service.listen(api)  # type: ignore[arg-type]
    for _ in range(3):
        await reset(api)
    await reset(api, f"{DURABLE}_n_gps")
    assert len(api.asked) == 2, "one of each"
    api.may_answer.set()
    await until(lambda: len(api.told) == 2)
    for _ in range(BURST + 5):
        await reset(api)
    assert len(api.asked) == 2 + BURST - 1
    assert service.refused == 2 + 6


async def test_a_reset_of_nobody_or_of_who_may_not_ask_is_passed_over() -> None:
    api, asking = Api(), list[str]()
    service = ResetService(api, HubClock(), lambda device: bool(asking.append(device)))  # type: ignore[arg-type, func-returns-value]
    await service.listen(api)  # type: ignore[arg-type]
    await reset(api)
    await reset(api, "VID-666")
    await reset(api, reply="$JS.ACK.a.b.1.1.1.1.0@x")
    assert (api.asked, service.refused, asking) == ([], 3, [RUDE])


async def test_whose_small_frames_expand_is_kept_out_and_named() -> None:
    it = Scene()
    bomb = points_bomb(1, points=4000)
    for _ in range(2):
        it.guard.expanded(RUDE, *content(bomb), it.clock.now_ns())
    await it.guard.act()
    assert it.done == [{RUDE}]
    [said] = it.guard.expanding().values()
    assert "bytes of points beyond their frames' size" in said
    assert it.guard.flooding() == {}


async def test_who_sends_more_points_than_anybody_is_kept_out() -> None:
    it = Scene()
    for _ in range(50):
        it.guard.expanded("VID-001", Expansion(250, 20_000), 700, it.clock.now_ns())
        it.clock.s += 0.2
    for _ in range(50):
        it.guard.expanded(RUDE, Expansion(250, 20_000), 700, it.clock.now_ns())
    await it.guard.act()
    assert it.done == [{RUDE}], "as much in ten seconds is what the budget refills by"
    assert list(it.guard.expanding()) == [RUDE]


async def test_what_was_stored_long_ago_says_nothing_of_how_fast_it_came() -> None:
    it = Scene()
    long_ago_ns = it.clock.now_ns() - LATE_NS - 1_000_000_000
    for _ in range(100):
        it.guard.expanded(RUDE, *content(points_bomb(1)), long_ago_ns)
    await it.guard.act()
    assert it.done == []


async def test_a_flood_of_points_is_acted_upon_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flood_guard, "INTERVAL_S", 3600)
    it = Scene()
    away = SimpleNamespace(new_inbox=no_answer)
    running = asyncio.create_task(it.guard.run(away, "A", away, 1))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    it.guard.expanded(RUDE, *content(points_bomb(1)), it.clock.now_ns())
    await until(lambda: it.done == [{RUDE}])
    running.cancel()
    await asyncio.wait([running])


def no_answer() -> str:
    raise HubError("away")

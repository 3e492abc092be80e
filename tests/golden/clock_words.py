"""The words between a vehicle and its hub about the time, and all that goes along with it, as both ends have them today."""

from __future__ import annotations

import asyncio
import contextlib
import json
from types import SimpleNamespace
from typing import Any

from backhaul_agent.config import ClockConfig, Config, DeviceConfig
from backhaul_agent.hub_time.hub_clock import HubClock
from backhaul_agent.time_sync.exchange import Exchange
from backhaul_agent.uplink.reconcile import HashQuestion
from backhaul_codec.protocol.vehicle_report import VehicleReport, read_report
from backhaul_hub.links.clock_service import ClockService
from tests.support.agent_clock import FakeClock

Words = dict[str, dict[str, Any]]
DEVICE, TOKEN = "VID-001", "tok1"
QUESTION, ANSWER = f"clk.{DEVICE}", f"clkr.{DEVICE}.{TOKEN}"
REPORT = VehicleReport(
    "0a1b", "2c3d", "4e5f", "0.2.0", 41, 87, (("link-budget", "day"), ("ledger-full", "")), 73
)
REPORTED = (
    *("machine", "boot", "run", "version", "ledger_pct", "disk_pct", "conditions", "budget_pct"),
)
PUSHED = {"epoch": 42, "lanes": {"bulk": 7, "n_front%20axle": 0}, "in": True, "terse": True}
HASHES = HashQuestion("bulk", 42, 5, 6)
# By name: whether the vehicle says and asks all that it can, and for how long the hub has it stay away.
CASES = {"the time alone": (False, 0.0), "all": (True, 0.0), "another's turn": (True, 13.2)}


async def spoken(given: Words | None = None) -> Words:
    """Return for each case the question and the answer as they are written, and what the other end hears.

    Args:
        given: questions that the hub hears and answers that the vehicle hears, as an earlier version wrote them;
            None: today's.
    """
    found: Words = {}
    for name, (whole, away_s) in CASES.items():
        before = given[name] if given is not None else {}
        question, _ = await _asked(whole, None)
        answer, at_hub = await _answered(before.get("question", question), away_s)
        _, at_vehicle = await _asked(whole, before.get("answer", answer))
        found[name] = {
            "question": question,
            "heard by the hub": at_hub,
            "answer": answer,
            "heard by the vehicle": at_vehicle,
        }
    plain: Words = json.loads(json.dumps(found))
    return plain


class _Wire:
    """Stands for a connection: has the first message published, and hands others to the one that listens."""

    is_closed = True

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._said: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._hear: Any = None

    async def subscribe(self, subject: str, cb: Any, **_: int) -> None:
        self._hear = cb

    async def publish(self, subject: str, payload: bytes) -> None:
        assert subject == self._subject
        if not self._said.done():
            self._said.set_result(payload.decode())

    async def said(self) -> str:
        async with asyncio.timeout(60):
            return await self._said

    async def hear(self, subject: str, payload: str) -> None:
        await self._hear(SimpleNamespace(subject=subject, data=payload.encode(), reply=""))


async def _asked(whole: bool, answer: str | None) -> tuple[str, dict[str, Any]]:
    heard: dict[str, Any] = {}

    def note(what: str) -> Any:
        return lambda *said: heard.__setitem__(what, said)

    config = Config(device=DeviceConfig(id=DEVICE, token=TOKEN), clock=ClockConfig())
    system = FakeClock()
    clock = HubClock(system, config.clock)
    clock.start("boot-a", [])
    wire = _Wire(QUESTION)
    more: tuple[Any, ...] = ()
    if whole:
        words = SimpleNamespace(wanted=lambda: [42, 41], heard=note("epochs, chain"))
        comparison = SimpleNamespace(question=HASHES, heard=note("hashes"))
        more = words, lambda: REPORT, comparison
    exchange = Exchange(config, clock, lambda: None, *more)
    exchange.on_push, exchange.on_down_ends = note("push, terse"), note("downs")
    exchange.on_yield = note("yield_s")
    if whole:
        exchange.tell(42, {"bulk": 9})
        exchange.push_word = lambda: PUSHED
        exchange.push_word_changed()
    asking = asyncio.create_task(exchange.run(wire))  # type: ignore[arg-type]
    try:
        question = await wire.said()
        if answer is not None:
            system.advance(0.05)
            await wire.hear(ANSWER, answer)
            heard["round_trip_ns"] = exchange.round_trip_ns
            heard["now_ms"] = clock.now_ns() // 10**6
    finally:
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking
    assert exchange.garbage == 0
    return question, heard


class _Known:
    """What the hub knows of two epochs; nothing of the messages of one seq."""

    async def of(self, _: str, epochs: tuple[int, ...]) -> dict[int, dict[str, tuple[int, int]]]:
        return {epoch: {"live": (3, 2), "bulk": (9, 7)} if epoch == 42 else {} for epoch in epochs}

    async def ends(self, _: str, epochs: tuple[int, ...]) -> dict[int, dict[str, tuple[str, int]]]:
        ends = {"live": ("", 0), "bulk": ("00ff10203040", 2)}
        return {epoch: ends if epoch == 42 else {} for epoch in epochs}

    async def hashes(self, *_: object) -> list[str | None]:
        return ["0123456789ab", None]


async def _answered(question: str, away_s: float) -> tuple[str, dict[str, Any]]:
    heard: dict[str, Any] = {}

    def note(what: str, answer: Any) -> Any:
        def noted(*said: Any) -> Any:
            heard[what] = said[1:]
            return answer

        return noted

    def on_heard(_: str, report: bytes) -> float:
        said = read_report(report) if report else None
        heard["vehicle"] = said and {name: getattr(said, name) for name in REPORTED}
        return away_s

    async def down_ends(_: str) -> dict[str, int]:
        return {"": 11, "n_front%20axle": 4}

    wire = _Wire(ANSWER)
    now_ns = iter((1_800_000_000_000_000_007, 1_800_000_000_000_000_014)).__next__
    service = ClockService(
        wire,  # type: ignore[arg-type]
        SimpleNamespace(now_ns=now_ns, monotonic_s=lambda: 0.0),
        {DEVICE: TOKEN}.get,
        _Known(),  # type: ignore[arg-type]
        on_still=note("still", None),
        on_heard=on_heard,
        on_push=note("push", ["bulk"]),
        down_ends=down_ends,
        on_terse=note("terse", True),
    )
    await service.listen(wire)  # type: ignore[arg-type]
    await wire.hear(QUESTION, question)
    answer = await wire.said()
    assert service.refused == 0
    return answer, heard

"""Vehicles whose wall clock is wrong by years: their points reach the hub with true times."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sqlite3
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nats
import pytest
from nats.errors import Error as NatsError

from backhaul_agent.client import connect
from backhaul_codec import Message, decode
from backhaul_codec.subjects import parse_uplink
from demo.rig import DeviceRig, Part

from .conftest import World, lane

if TYPE_CHECKING:
    from collections.abc import Callable

    from demo.relay import Relay

pytestmark = [pytest.mark.nats, pytest.mark.timeout(180)]

YEAR_S = 365 * 86_400
SCRIPT = Path(__file__).parents[1] / "support" / "skewed_agent.py"
SLACK_NS = 250_000_000  # what a busy machine may put between a clock that is read and one that is


class Vehicle:
    """A vehicle with a wall clock that we set."""

    def __init__(self, world: World, rig: DeviceRig, relay: Relay) -> None:
        self.world, self.rig, self.relay = world, rig, relay
        self._offset = rig.agent_toml.with_name("offset")
        script = [sys.executable, str(SCRIPT), str(rig.agent_toml), str(self._offset)]
        rig.agent = Part(f"{rig.device} agent", script, rig.agent_toml.with_name("agent.log"))
        self.sent: dict[float, tuple[int, int]] = {}  # number: earliest and latest true time

    @property
    def ledger(self) -> Path:
        return self.rig.agent_toml.parent / "backhaul-agent" / "ledger.db"

    def set_wall_clock(self, seconds: float) -> None:
        self._offset.write_text(str(seconds))

    def configure(self, text: str) -> None:
        with self.rig.agent_toml.open("a") as file:
            file.write(text)

    async def send(self, count: int, *, live: bool = False) -> None:
        """Publish numbered readings without a time, each kept before the next."""
        async with connect(self.rig.url) as agent:
            for _ in range(count):
                number = float(len(self.sent))
                before = time.time_ns()
                await agent.publish("n", "t", number, lane="live" if live else "bulk")
                self.sent[number] = (before, time.time_ns())

    async def status(self) -> dict[str, Any]:
        async with connect(self.rig.url) as agent:
            return await agent.status()

    async def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        status: dict[str, Any] = {}
        for _ in range(600):
            with contextlib.suppress(Exception):
                status = await self.status()
                if wanted(status):
                    return status
            await asyncio.sleep(0.05)
        pytest.fail(f"never came true: {json.dumps(status, indent=1)}")

    async def all_at_the_hub(self) -> None:
        for name in ("bulk", "live"):
            status = await self.until(
                lambda status: (
                    not status["ledger"]["staged_points"] and not status["clock"]["held_messages"]
                )
            )
            last = status["lanes"][name]["last_seq"]
            await self.world.until(
                lambda report, name=name, last=last: (  # type: ignore[misc]
                    lane(report, name=name).get("watermark", 0) >= last
                )
            )


async def vehicle(world: World, seconds: float, config: str = "") -> Vehicle:
    """Return a vehicle whose link is cut and whose wall clock is off, its agent running."""
    rig, relay = await world.vehicle()
    await rig.agent.stop()
    await relay.cut()
    for file in (rig.agent_toml.parent / "backhaul-agent").iterdir():
        file.unlink()
    made = Vehicle(world, rig, relay)
    made.set_wall_clock(seconds)
    made.configure("\n[frame]\nage_s_max = 0.05\npoints_max = 8\n" + config)
    # The first agent had this machine's true clock: nothing of that may be left.
    client = await world.connect(rig.url)
    for name in ("OUT_live", "OUT_bulk"):
        await client.request(f"$JS.API.STREAM.PURGE.{name}", b"{}")
    await rig.start_agent()
    return made


async def read_up(world: World, device: str) -> dict[str, list[Message]]:
    """Read from UP all messages of a device, each position counted once, by letter."""
    client = await nats.connect(world.hub.url())
    try:
        jetstream = client.jetstream()
        last = (await jetstream.stream_info("UP_00")).state.last_seq
        found: dict[tuple[str, int, int], tuple[str, Message]] = {}
        for seq in range(1, last + 1):
            try:
                stored = await jetstream.get_msg("UP_00", seq, direct=True)
            except NatsError:
                continue
            assert stored.subject is not None
            assert stored.data is not None
            place = parse_uplink(stored.subject)
            if place.device != device:
                continue
            message = decode(stored.data, node=place.node, type=place.type, key=place.key)
            key = (place.lane, message.epoch, message.seq)
            assert key not in found or found[key][1].points == message.points
            found[key] = (place.letter, message)
    finally:
        await client.close()
    by_letter: dict[str, list[Message]] = {"f": [], "p": [], "e": []}
    for letter, message in found.values():
        by_letter[letter].append(message)
    return by_letter


def assert_true_times(messages: list[Message], sent: dict[float, tuple[int, int]]) -> None:
    """Every reading is there once, at the time at which it was published."""
    found = [(point.value, point.time) for message in messages for point in message.points]
    assert sorted(value for value, _ in found) == sorted(sent)  # type: ignore[type-var]
    for value, stamp in found:
        assert isinstance(value, float)
        before, after = sent[value]
        assert before - SLACK_NS <= stamp <= after + SLACK_NS, (value, stamp - before)


@pytest.mark.parametrize("years", [-56, 30])
async def test_readings_made_without_a_clock_arrive_with_true_times(
    world: World, years: int
) -> None:
    it = await vehicle(world, years * YEAR_S)
    await it.send(30)
    await it.send(5, live=True)
    status = await it.until(lambda status: status["clock"]["held_messages"] > 5)
    assert status["clock"]["quality"] == "unset"
    assert status["clock"]["error_ns"] is None
    assert [status["lanes"][name]["appended"] for name in ("live", "bulk")] == [0, 0]
    await it.relay.heal()
    status = await it.until(lambda status: status["clock"]["quality"] == "synced")
    assert abs(status["clock"]["offset_ns"] / 1e9 + years * YEAR_S) < 1
    assert status["clock"]["error_ns"] < SLACK_NS
    await it.send(10)
    # The wall clock jumps, by itself or because somebody set it: nothing comes of it.
    for seconds in (3600, -40 * YEAR_S, 5):
        it.set_wall_clock(seconds)
        await it.until(lambda status, s=seconds: abs(status["clock"]["offset_ns"] / 1e9 + s) < 1)  # type: ignore[misc]
        await it.send(5)
    status = await it.until(lambda status: status["clock"]["jumps"] >= 1)
    await it.all_at_the_hub()
    found = await read_up(world, "VID-001")
    assert_true_times([*found["f"], *found["p"]], it.sent)
    assert {message.clock for message in found["f"]} == {0}
    said = [json.loads(m.points[0].value.data) for m in found["e"] if b"quality" in _data(m)]  # type: ignore[union-attr]
    assert {word["quality"] for word in said} == {"synced"}, "nothing that arrived was ever unset"
    report = await world.report()
    assert report["devices"][0]["clock"]["quality"] == "synced"


def _data(message: Message) -> bytes:
    value = message.points[0].value
    return getattr(value, "data", b"")


async def test_killed_while_stamps_are_put_right_each_is_put_right_once(world: World) -> None:
    it = await vehicle(world, -56 * YEAR_S)
    await it.send(1500, live=True)  # a message each
    status = await it.until(lambda status: not status["ledger"]["staged_points"])
    held = status["clock"]["held_messages"]
    assert held > 1500

    def waiting() -> int:
        with contextlib.closing(sqlite3.connect(it.ledger, timeout=5)) as db:
            (count,) = db.execute("SELECT count(*) FROM messages WHERE boot > 0").fetchone()
            return int(count)

    kills = 0
    await it.relay.heal()
    while left := await asyncio.to_thread(waiting):
        if left < held:
            await it.rig.agent.stop(signal.SIGKILL)
            kills, held = kills + 1, await asyncio.to_thread(waiting)
            await it.rig.start_agent()
    assert kills, "it was too quick to be killed"
    await it.all_at_the_hub()
    found = await read_up(world, "VID-001")
    assert_true_times(found["p"], it.sent)


async def test_a_hub_that_never_tells_the_time_gets_the_readings_all_the_same(
    world: World,
) -> None:
    it = await vehicle(world, -56 * YEAR_S, "[clock]\nhold_s_max = 1.5\n")
    await it.send(10)
    await asyncio.sleep(2.0)
    status = await it.status()
    assert status["clock"]["held_messages"], "with the link down, patience does not run out"
    # The hub's server answers, its control plane does not: streams are sourced as they were.
    await world.hub.control.stop()
    await it.relay.heal()
    status = await it.until(lambda status: not status["clock"]["held_messages"])
    assert status["clock"]["quality"] == "unset"
    assert status["clock"]["stamps_given_up"] > 0
    await world.hub.start_control()
    await it.all_at_the_hub()
    found = await read_up(world, "VID-001")
    values = sorted(point.value for message in found["f"] for point in message.points)  # type: ignore[type-var]
    assert values == sorted(it.sent)
    assert {message.clock for message in found["f"]} == {2}

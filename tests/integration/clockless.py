"""A vehicle whose clock is wrong, over real servers, and what UP has of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from nats.js.errors import NotFoundError

from backhaul_agent.client import connect
from backhaul_codec import Message, decode
from backhaul_codec.subjects import parse_uplink
from backhaul_codec.wire.plain_reader import PlainReader
from tests.support.rig.parts import DeviceRig, Part

from .conftest import DEADLINE_S, World, lane

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.rig.relay import Relay

YEAR_S = 365 * 86_400
SCRIPT = Path(__file__).parents[1] / "support" / "skewed_agent.py"
# What a busy machine may put between a clock that is read and one that is.
SLACK_NS = 10_000_000_000


class Vehicle:
    """A vehicle with a wall clock that we set."""

    def __init__(self, world: World, rig: DeviceRig, relay: Relay) -> None:
        self.world, self.rig, self.relay = world, rig, relay
        self.offset = rig.agent_toml.with_name("offset")
        script = [sys.executable, str(SCRIPT), str(rig.agent_toml), str(self.offset)]
        rig.agent = Part(f"{rig.device} agent", script, rig.agent_toml.with_name("agent.log"))
        self.sent: dict[float, tuple[int, int]] = {}  # number: earliest and latest true time

    @property
    def ledger(self) -> Path:
        return self.rig.agent_toml.parent / "backhaul-agent" / "ledger.db"

    def set_wall_clock(self, seconds: float) -> None:
        self.offset.write_text(str(seconds))

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
        for _ in range(2400):
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
            # Killed, it may have begun another epoch: what the hub holds of the one before says nothing.
            end = status["epoch"], status["lanes"][name]["last_seq"]
            await self.world.until(
                lambda report, name=name, end=end: (  # type: ignore[misc]
                    not end[1]
                    or (
                        (it := lane(report, name=name)).get("epoch") == end[0]
                        and it["watermark"] >= end[1]
                    )
                )
            )


async def vehicle(world: World, seconds: float, config: str = "") -> Vehicle:
    """Return a vehicle whose link is cut and whose wall clock is off, its agent running."""
    rig, relay = await world.vehicle()
    await rig.agent.stop()
    await relay.cut()
    state = rig.agent_toml.parent / "backhaul-agent"
    shutil.rmtree(state)
    state.mkdir()
    made = Vehicle(world, rig, relay)
    made.set_wall_clock(seconds)
    made.configure("\n[frame]\nage_s_max = 0.05\npoints_max = 8\n" + config)
    # The first agent had this machine's true clock: nothing of that may be left.
    client = await world.leaf_client(rig)
    for name in ("OUT_live", "OUT_bulk"):
        await client.request(f"$JS.API.STREAM.PURGE.{name}", b"{}")
    await rig.start_agent()
    return made


async def read_up(world: World, device: str) -> dict[str, list[Message]]:
    """Read from UP all messages of a device, each position counted once, by letter."""
    client = await world.hub.connect()
    try:
        jetstream = client.jetstream(prefix="upapi", timeout=DEADLINE_S)
        last = (await jetstream.stream_info("UP_00")).state.last_seq
        found: dict[tuple[str, int, int], tuple[str, Message]] = {}
        dictionaries = PlainReader()
        for seq in range(1, last + 1):
            try:
                stored = await jetstream.get_msg("UP_00", seq, direct=True)
            except NotFoundError:
                continue
            assert stored.subject is not None
            assert stored.data is not None
            place = parse_uplink(stored.subject)
            if place.device != device:
                continue
            message = decode(
                dictionaries.take(place, stored.data),
                node=place.node,
                type=place.type,
                key=place.key,
            )
            key = (place.lane, message.epoch, message.seq)
            assert key not in found or found[key][1].points == message.points
            found[key] = (place.letter, message)
    finally:
        await client.close()
    by_letter: dict[str, list[Message]] = {"f": [], "p": [], "e": []}
    for letter, message in found.values():
        by_letter[letter].append(message)
    return by_letter


def without_heads_again(messages: list[Message], *, compared: int) -> list[Message]:
    """Return messages, each once. Only what was the head may be there twice, and as it was.

    One that is still on its way when both ends compare is sent once more; they did so many times.
    """
    counts = Counter(repr(each.points) for each in messages)
    twice = {p.value for each in messages for p in each.points if counts[repr(each.points)] > 1}
    assert len(twice) <= compared, twice
    return list({repr(each.points): each for each in messages}.values())


def assert_true_times(messages: list[Message], sent: dict[float, tuple[int, int]]) -> None:
    """Every reading is there once, at the time at which it was published."""
    found = [(point.value, point.time) for message in messages for point in message.points]
    assert sorted(value for value, _ in found) == sorted(sent)  # type: ignore[type-var]
    for value, stamp in found:
        assert isinstance(value, float)
        before, after = sent[value]
        assert before - SLACK_NS <= stamp <= after + SLACK_NS, (value, stamp - before)

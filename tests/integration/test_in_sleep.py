"""IN sleeps on an idle link: it carries next to nothing, and what the hub has to say comes, and once."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.client import connect
from backhaul_agent.client.config import ConfigClient
from tests.support.rig.relay import Relay

from .conftest import DEADLINE_S, World
from .doors import Door
from .ends import Ends

if TYPE_CHECKING:
    from tests.support.rig.parts import DeviceRig

pytestmark = [pytest.mark.nats]
IDLE_S = 20
HEARTBEAT_BYTES = 146


async def asleep(rig: DeviceRig, *, wakes: int = 0) -> dict[str, Any]:
    """Wait until IN sleeps, woken so often at least; return what the status says of the link."""
    link: dict[str, Any] = {}
    async with asyncio.timeout(DEADLINE_S), connect(rig.url) as agent:
        while not link.get("in_asleep") or link["in_wakes"] < wakes:
            await asyncio.sleep(0.1)
            link = (await agent.status())["link"]
    return link


async def in_sources(world: World, rig: DeviceRig, stream: str = "IN") -> list[Any]:
    local = await world.leaf_client(rig)
    asked = f"$JS.API.STREAM.INFO.{stream}"
    answer = json.loads((await local.request(asked, b"", timeout=30)).data)
    return answer["config"].get("sources") or []


async def start(world: World, *nodes: str) -> tuple[DeviceRig, Relay]:
    relay = Relay("127.0.0.1", world.hub.leaf_port)
    rig, _ = await world.vehicle_behind(relay, nodes=nodes)
    await asleep(rig)
    return rig, relay


async def test_an_idle_link_carries_no_heartbeat_and_commands_and_settings_come(
    world: World,
) -> None:
    """Also of a node that has streams of its own; no lane but its carries anything."""
    rig, relay = await start(world, "battery")
    async with connect(rig.url) as agent, asyncio.timeout(DEADLINE_S):
        await agent.publish("battery", "soc", 1.0)
        lanes = ["bulk", "live", "n_battery"]
        while (await agent.status())["link"]["pushed"] != lanes:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    for stream in ("IN", "IN_n_battery"):
        assert await in_sources(world, rig, stream) == []
    await asyncio.sleep(12)  # the last watermarks, and the sources' last heartbeats
    before = relay.up_bytes + relay.down_bytes
    await asyncio.sleep(IDLE_S)
    carried = relay.up_bytes + relay.down_bytes - before
    assert carried < IDLE_S * HEARTBEAT_BYTES / 4, carried
    door = await Door(world, rig).open()
    hub = await world.hub_client()
    for _ in range(6):
        await door.command(hub)
    await asleep(rig, wakes=1)
    async with connect(rig.url) as agent:
        ends = Ends(world, rig, hub, ConfigClient(agent))
        await ends.set_at_hub("lamp", on=1)
        await ends.agree(lambda heads: ("", "lamp", "on", "") in heads)
        await asleep(rig, wakes=2)
        await ends.set_at_hub("battery", limit=80)
        await ends.agree(lambda heads: ("", "battery", "limit", "") in heads)
    link = await asleep(rig, wakes=3)
    assert link["in_wakes"] == 3, link
    assert await in_sources(world, rig) == []
    door.each_once()


async def test_restarts_and_cuts_lose_nothing_and_double_nothing(world: World) -> None:
    rig, relay = await start(world)
    door = await Door(world, rig).open()
    hub = await world.hub_client()
    # The control plane, with a command that waits for it.
    await world.hub.control.stop(signal.SIGKILL)
    waits = asyncio.create_task(door.command(hub))
    await world.hub.start_control()
    await waits
    await asleep(rig)
    # The link, while nobody looks: it is back sooner than the agent sees.
    await relay.cut()
    await relay.heal()
    await door.command(hub)
    await asleep(rig)
    await relay.cut()
    await asyncio.sleep(3)
    waits = asyncio.create_task(door.command(hub))
    await asyncio.sleep(1)
    await relay.heal()
    await waits
    await asleep(rig)
    # The agent, with a command that comes while it is away.
    await rig.agent.stop(signal.SIGKILL)
    waits = asyncio.create_task(door.command(hub))
    await asyncio.sleep(1)
    await rig.start_agent()
    await waits
    await asleep(rig)
    await door.command(hub)
    await asleep(rig, wakes=1)
    door.each_once()

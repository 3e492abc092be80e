"""State and configuration over links and processes that fail: both ends come to the same heads."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.client import connect
from backhaul_agent.client.config import ConfigClient
from backhaul_codec import Opaque, Point
from tests.integration.conftest import World, lane
from tests.integration.ends import Ends, until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


pytestmark = [pytest.mark.nats]


async def with_ends(world: World, test: Callable[[Ends, Any], Awaitable[None]]) -> None:
    rig, relay = await world.vehicle()
    hub = await world.hub_client()
    async with connect(rig.url) as agent:
        await test(Ends(world, rig, hub, ConfigClient(agent)), relay)


async def test_what_both_write_during_an_outage_is_the_same_at_both_afterwards(
    world: World,
) -> None:
    async def test(ends: Ends, relay: Any) -> None:
        await ends.vehicle.set("gps", {"rate": 1.0})
        await ends.set_at_hub("gps", mode="slow")
        await ends.agree(lambda heads: len(heads) == 2)
        await relay.cut()
        await world.until(lambda report: not report["devices"][0]["link"]["up"])
        await ends.set_at_hub("gps", rate=2.0)
        await ends.set_at_hub("hmi", brightness=5, theme="dark")
        await ends.past_all_writes()
        await ends.vehicle.set("gps", {"rate": 3.0, "mode": "fast"})
        await ends.vehicle.change_tree("create", node="imu", points=[{"type": "x", "value": 1}])
        await ends.past_all_writes()
        await ends.set_at_hub("gps", mode="medium")
        await relay.heal()
        heads = await ends.agree(lambda heads: len(heads) == 6)
        assert heads["", "gps", "rate", ""][0] == 3.0
        assert heads["", "gps", "mode", ""][0] == "medium"
        assert heads["", "gps", "mode", ""][2] == "hub:ann"
        assert heads["VID-001", "imu", "nodeType", ""][0] == "node"

    await with_ends(world, test)


async def test_a_vehicle_that_lost_its_ledger_gets_its_heads_back(world: World) -> None:
    async def test(ends: Ends, _: Any) -> None:
        await ends.vehicle.set("gps", {"rate": 1.0, "mode": "fast"})
        await ends.set_at_hub("hmi", theme="dark")
        before = await ends.agree(lambda heads: len(heads) == 3)
        await ends.rig.agent.stop()
        for path in ends.rig.agent_toml.parent.rglob("ledger.db*"):
            path.unlink()
        await ends.rig.start_agent()
        assert await ends.agree(lambda heads: len(heads) == 3) == before

    await with_ends(world, test)


async def test_a_leaf_that_lost_its_store_changes_nothing(world: World) -> None:
    async def test(ends: Ends, _: Any) -> None:
        await ends.vehicle.set("gps", {"rate": 1.0})
        await ends.set_at_hub("hmi", theme="dark")
        before = await ends.agree(lambda heads: len(heads) == 2)
        client = await ends.world.leaf_client(ends.rig)
        await client.request("$JS.API.STREAM.DELETE.IN", b"", timeout=30)
        await ends.set_at_hub("hmi", theme="light")
        after = await ends.agree(lambda heads: heads["", "hmi", "theme", ""][0] == "light")
        assert after["", "gps", "rate", ""] == before["", "gps", "rate", ""]

    await with_ends(world, test)


async def test_kills_at_any_moment_skip_nothing(world: World) -> None:
    """The agent dies again and again while both ends write; what was answered is there at the end."""
    seed = random.randrange(1 << 32)
    print("seed", seed)  # noqa: T201 - shown where the test fails
    chance = random.Random(seed)

    async def test(ends: Ends, _: Any) -> None:
        kept: dict[str, int] = {}

        async def write_at_hub() -> None:
            for number in range(120):
                await ends.set_at_hub(f"h{number % 7}", **{f"t{number % 3}": number})

        async def write_here() -> None:
            for number in range(60):
                node = f"v{number % 5}"
                while node not in kept or kept[node] < number:
                    try:
                        await ends.vehicle.set(node, {"x": number, "y": number})
                        kept[node] = number
                    except Exception:  # noqa: BLE001 - nobody listens just now: once more
                        await asyncio.sleep(0.05)

        async def kill() -> None:
            for _ in range(4):
                await asyncio.sleep(chance.uniform(0.0, 0.5))
                await ends.rig.agent.stop(signal.SIGKILL)
                await ends.rig.start_agent()

        async with asyncio.TaskGroup() as tasks:
            for work in (write_at_hub(), write_here(), kill()):
                tasks.create_task(work)
        heads = await ends.agree(lambda heads: len(heads) == 7 * 3 + 5 * 2)
        for number in range(120 - 21, 120):
            assert heads["", f"h{number % 7}", f"t{number % 3}", ""][0] == number
        for node, number in kept.items():
            assert [heads["", node, type_, ""][0] for type_ in "xy"] == [number, number]

    await with_ends(world, test)


async def test_newest_values_go_ahead_of_a_backlog(world: World) -> None:
    async def test(ends: Ends, relay: Any) -> None:
        await world.until(lambda report: report["devices"][0]["link"]["up"])
        await relay.cut()
        await world.until(lambda report: not report["devices"][0]["link"]["up"])
        async with connect(ends.rig.url) as agent:
            for start in range(0, 5000, 250):
                points = [
                    Point("bms", "soc", n * 10**9, float(n)) for n in range(start, start + 250)
                ]
                await agent.publish_batch("bms", points)
        # Without the control plane the link comes up and nothing drains: all of it is a backlog.
        await world.hub.control.stop()
        local = await world.leaf_client(ends.rig)
        told_at = await local.subscribe("e.heads")
        await local.flush()
        await relay.heal()
        await told_at.next_msg(60)
        await world.hub.start_control()
        await world.until(lambda report: lane(report).get("watermark", 0) >= 20)
        async with until(lambda: "no newest values"):  # on another lane, which goes its own way
            while not (heads := await ends.uplink("heads")):
                pass
        told = heads[0]
        assert isinstance(told.value, Opaque)
        assert json.loads(told.value.data) == {"points": [["bms", "soc", "", 4999 * 10**9, 4999.0]]}

    await with_ends(world, test)

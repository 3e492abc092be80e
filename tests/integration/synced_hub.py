"""A hub and a vehicle that write to each other."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from backhaul_agent.client import connect
from backhaul_agent.client.config import ConfigClient
from tests.support.rig.parts import program, run_to_end

if TYPE_CHECKING:
    from tests.support.rig.parts import DeviceRig

    from .conftest import World


DEADLINE_S = 120.0


async def hub(world: World, *arguments: str) -> str:
    """Run `backhaul-hub` against this world's hub."""
    command, *rest = arguments
    return await run_to_end(
        [program("backhaul-hub"), command, *rest, "--dir", str(world.hub.directory)]
    )


async def values(world: World, device: str = "VID-001") -> dict[str, Any]:
    """Return the heads of a device: series to value."""
    answer = json.loads(await hub(world, "get", device, "--json"))
    return {f"{each['node']}.{each['type']}": each["value"] for each in answer["points"]}


async def until(condition: Any, *, deadline_s: float = DEADLINE_S) -> None:
    """Wait until an async condition holds."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + deadline_s
    while not await condition():
        assert loop.time() < end_s, "never came true"
        await asyncio.sleep(0.05)


async def config_goes_both_ways(world: World, rig: DeviceRig, value: int) -> None:
    """See that what is set at either end arrives at the other."""
    async with connect(rig.url) as agent:
        config = ConfigClient(agent)
        await config.set("gps", {"here": value})
        await hub(world, "set", "VID-001", f"gps.there:int64={value}")

        async def arrived() -> bool:
            points = {point["type"]: point["value"] for point in await config.get("gps")}
            at_hub = await values(world)
            return points.get("there") == value and at_hub.get("gps.here") == value

        await until(arrived)

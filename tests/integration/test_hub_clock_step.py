"""The clock of the hub's machine is a day off for a while, and vehicles' links bounce meanwhile."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.client import connect
from backhaul_agent.client.config import ConfigClient
from backhaul_runtime.clock import SystemClock
from tests.chaos.wall import Wall
from tests.integration.conditions import HEALTH, until_shown
from tests.integration.ends import Ends
from tests.support.rig.parts import Part

from .conftest import DEADLINE_S, World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from backhaul_agent.client import Agent

pytestmark = [pytest.mark.nats]
DAY_S = 86_400.0
NEAR_NS = 60 * 10**9


class Off(World):
    """A world whose hub goes by a clock that tests set."""

    async def start_hub(self, rule: str) -> None:
        """Start it; `rule`: lines of [clock] in hub.toml."""
        await self.hub.init()
        toml = self.hub.directory / "hub.toml"
        text = re.sub(r"\n\[(clock|health)\]\n[^\[]*", "\n", toml.read_text())
        toml.write_text(f"{text}\n[clock]\n{rule}\n{HEALTH}")
        self.wall = Wall(self.directory / "hub-offset", SystemClock().now_ns)
        control = self.hub.control
        command = self.wall.control_plane(self.hub.directory)
        self.hub.control = Part(control.name, command, control.log)
        self._stack.push_async_callback(self.hub.stop)
        await self.hub.start()


@pytest.fixture
async def off(tmp_path: Path) -> AsyncIterator[Off]:
    async with AsyncExitStack() as stack:
        yield Off(tmp_path, stack)


async def status_when(agent: Agent, wanted: str) -> dict[str, Any]:
    """Wait until the vehicle's clock says so of itself."""
    said: dict[str, Any] = {}
    try:
        async with asyncio.timeout(DEADLINE_S):
            while said.get("clock", {}).get("quality") != wanted:
                await asyncio.sleep(0.05)
                said = await agent.status()
    except TimeoutError:
        pytest.fail(f"never {wanted}: {said}")
    return said


def wrong_ns(status: dict[str, Any]) -> int:
    """Return by how much a vehicle's time is off."""
    return abs(int(status["clock"]["time_ns"]) - SystemClock().now_ns())


async def test_the_hub_does_not_go_by_a_clock_that_was_set_nor_does_its_successor(off: Off) -> None:
    await off.start_hub("")
    rig, relay = await off.vehicle()
    async with connect(rig.url) as agent, off.hub.connection() as client:
        ends = Ends(off, rig, client, ConfigClient(agent))
        await status_when(agent, "synced")
        off.wall.jump(DAY_S)
        shown = await until_shown(off, "hub-clock-step", detail="+86400.0 s")
        assert "timedatectl" in shown["hint"]
        await off.hub.control.stop()
        await off.hub.start_control()
        await until_shown(off, "hub-clock-step", detail="+86400.0 s")
        await relay.cut()
        await until_shown(off, "link-down")
        await relay.heal()
        await until_shown(off, "link-down", shown=False)
        await ends.set_at_hub("gps", rate=3.0)
        await ends.agree(lambda heads: bool(heads))
        await ends.vehicle.set("gps", {"rate": 9.0})
        heads = await ends.agree(lambda heads: heads["", "gps", "rate", ""][0] == 9.0)
        assert all(
            abs(time_ns - SystemClock().now_ns()) < NEAR_NS for _, time_ns, *_ in heads.values()
        )
        status = await agent.status()
        assert wrong_ns(status) < NEAR_NS
        assert status["clock"]["quality"] == "synced"
        off.wall.jump(0.0)
        await until_shown(off, "hub-clock-step", shown=False)


async def test_a_vehicle_does_not_follow_a_hub_that_went_by_a_wrong_clock(off: Off) -> None:
    """This hub believes whatever its machine says, as one does whose steady clock is false as well."""
    await off.start_hub("max_step_s = 1e9")
    rig, relay = await off.vehicle()
    async with connect(rig.url) as agent, off.hub.connection() as client:
        ends = Ends(off, rig, client, ConfigClient(agent))
        await status_when(agent, "synced")
        off.wall.jump(DAY_S)
        await relay.cut()
        await until_shown(off, "link-down")
        await relay.heal()
        said = await status_when(agent, "holdover")
        assert wrong_ns(said) < NEAR_NS
        assert (
            "hub-clock-step" in {each["code"] for each in said["conditions"]}
            or said["clock"]["step_ns"]
        )
        shown = await until_shown(off, "hub-clock-doubted", detail="+86400.0 s")
        assert shown["device"] == "VID-001"
        await ends.set_at_hub("gps", rate=3.0)
        await ends.agree()
        off.wall.jump(0.0)
        await ends.vehicle.set("gps", {"rate": 9.0})
        await ends.agree(lambda heads: heads["", "gps", "rate", ""][0] == 9.0)
        await ends.set_at_hub("gps", rate=4.0)
        await ends.agree(lambda heads: heads["", "gps", "rate", ""][0] == 4.0)
        await until_shown(off, "heads-ahead")
        await relay.cut()
        await until_shown(off, "link-down")
        await relay.heal()
        assert wrong_ns(await status_when(agent, "synced")) < NEAR_NS
        await until_shown(off, "hub-clock-doubted", shown=False)
        await until_shown(off, "heads-differ", shown=False)

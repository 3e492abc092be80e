"""The twin, from vehicles to stock clients: what docs/twin.md shows is run as it stands."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import Any

import pytest

from backhaul_agent.client import connect
from backhaul_runtime.clock import SystemClock
from tests.support.rig.parts import program, run_to_end

from .conftest import World, lane
from .examples import DEADLINE_S, Examples, line

pytestmark = pytest.mark.nats
EXAMPLES = Examples("twin.md")
running, printed = EXAMPLES.running, EXAMPLES.printed


def test_the_examples_import_nothing_of_this_project() -> None:
    assert EXAMPLES.texts.keys() >= {
        "follow.py",
        "last.py",
        "positions.py",
        "since.py",
        "events.py",
    }
    assert not any(name.startswith("backhaul") for name in EXAMPLES.imported())


async def test_state_is_read_as_the_documentation_shows(world: World) -> None:
    first, relay = await world.vehicle()
    second, _ = await world.vehicle("VID-002")
    assert await printed(world, "last.py") == ["nothing in the last hour"]
    async with (
        running(world, "follow.py") as follow,
        connect(first.url) as agent,
        connect(second.url) as other,
    ):
        assert await line(follow) == "following"
        await agent.publish("battery", "soc", 81.2)
        assert await line(follow) == "VID-001 battery soc  81.2"
        for each, lat in ((agent, 48.1), (other, 52.5)):
            await each.publish("gps", "position", lat, key="lat")
            await each.publish("gps", "position", 11.5, key="lon")
        heard = {await line(follow) for _ in range(4)}
        assert "VID-002 gps position lat 52.5" in heard
        # What waits while the link is down moves the state once, and never back.
        await relay.cut()
        for soc in range(80, 60, -1):
            await agent.publish("battery", "soc", float(soc))
        await relay.heal()
        after = await line(follow)
        while after != "VID-001 battery soc  61.0":
            assert after.startswith("VID-001 battery soc"), after
            after = await line(follow)
    [last] = await printed(world, "last.py")
    assert json.loads(last)["data"]["value"] == 61.0
    assert await printed(world, "positions.py") == ["VID-001 48.1 11.5", "VID-002 52.5 11.5"]
    since = await printed(world, "since.py")
    values = [float(each.split()[-1]) for each in since if " soc " in each]
    assert values[0] == 81.2
    assert values == sorted(values, reverse=True)


async def events(world: World, *arguments: str) -> dict[str, Any]:
    command = [program("backhaul-hub"), "events", *arguments, "--json"]
    found: dict[str, Any] = json.loads(
        await run_to_end([*command, "--dir", str(world.hub.directory)])
    )
    return found


async def test_events_of_an_outage_appear_once_in_order_with_their_times(world: World) -> None:
    """Offline, the agent killed and the leaf too; then the hub asks for some of it again."""
    rig, relay = await world.vehicle()
    start_ns = SystemClock().now_ns() - 3600 * 10**9
    async with connect(rig.url) as agent:
        await agent.event("armed", previous="disarmed", reason="pilot", time=start_ns)
        await world.until(lambda report: lane(report, name="live").get("watermark", 0) >= 1)
        await relay.cut()
        for second in range(1, 11):
            kind = "failsafe" if second % 2 else "armed"
            await agent.event(kind, data={"n": second}, time=start_ns + second * 10**9)
        await rig.agent.stop(signal.SIGKILL)
        await rig.leaf.stop(signal.SIGKILL)
        await rig.start()
        await agent.event("landed", time=start_ns + 11 * 10**9)
        await relay.heal()
        async with asyncio.timeout(DEADLINE_S):
            while len((await events(world))["events"]) < 12:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        # As if the hub had lost all of it: the vehicle sends it once more.
        hub = await world.hub_client()
        await hub.jetstream(prefix="upapi").purge_stream("UP_00")
        async with asyncio.timeout(DEADLINE_S):
            while not (await events(world))["repeats"]:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        found = (await events(world, "VID-001"))["events"]
    assert [event["time"] for event in found] == [start_ns + n * 10**9 for n in range(12)]
    assert found[0]["previous"] == "disarmed"
    assert [event["data"]["n"] for event in found[1:11]] == list(range(1, 11))
    assert len({(event["epoch"], event["seq"]) for event in found}) == 12
    landed = await events(world, "--kind", "landed")
    assert [event["kind"] for event in landed["events"]] == ["landed"]
    shown = await printed(world, "events.py")
    assert shown[0] == f"VID-001 {start_ns} armed disarmed pilot None"
    assert len(shown) == 12


async def test_a_control_plane_killed_leaves_no_state_behind(world: World) -> None:
    rig, _ = await world.vehicle()
    async with connect(rig.url) as agent:
        await agent.publish("battery", "soc", 81.2)
        await world.until(lambda report: lane(report).get("watermark", 0) >= 1)
        await world.hub.control.stop(signal.SIGKILL)
        hub = await world.hub.connect()
        try:
            # As if it had been killed between reading and publishing.
            await hub.jetstream().purge_stream("TWIN_STATE")
        finally:
            await hub.close()
        await world.hub.start_control()
        async with asyncio.timeout(DEADLINE_S):
            while "81.2" not in (await printed(world, "last.py"))[0]:  # noqa: ASYNC110
                await asyncio.sleep(0.1)

"""A hub of one server becomes one of three while its vehicles send: nobody is enrolled anew.

Real servers, a real vehicle. Not covered: machines of their own, TLS between them (tests/hub/test_grown_hub.py has
the certificates).
"""

from __future__ import annotations

import signal

import pytest

from tests.integration.conditions import until_shown
from tests.integration.migration import Load
from tests.integration.readings import at_the_hub
from tests.integration.synced_hub import config_goes_both_ways
from tests.support.rig.cluster import NAMES, ClusterRig
from tests.support.rig.parts import program, run_to_end
from tests.support.rig.ports import free_port
from tests.support.run_here import run_here

from .conftest import World, lane

pytestmark = [pytest.mark.nats, pytest.mark.timeout(600)]


async def test_one_server_becomes_three_under_load(world: World) -> None:
    """The first of the three takes the old one's address, so that vehicles need not be told anything."""
    rig, _ = await world.vehicle()
    await config_goes_both_ways(world, rig, 1)
    old, load = world.hub, Load(rig)
    new = ClusterRig(world.directory / "grown", watermark_interval_s=0.2, run=run_here)
    new.client_ports["a"], new.leaf_ports["a"] = old.client_port, old.leaf_port
    places = (
        f"{name}=127.0.0.1:{new.client_ports[name]}:{new.leaf_ports[name]}:{free_port()}"
        for name in NAMES
    )
    words = [program("backhaul-hub"), "grow", str(new.directory), "--dir", str(old.directory)]
    said = await run_to_end([*words, *(word for each in places for word in ("--server", each))])
    assert "a has the old server's address" in said
    try:
        for name in ("b", "c"):
            await new.start_server(name)
        async with load.running():
            assert "The hub works on" in await run_to_end([*words, "--prepare"])
            assert "UP_00: " in await run_to_end(words)
            await old.stop()
            await new.start_server("a")
            world.hub = new
            await new.start_control()
            await load.more()
            for name in ("UP_00", "DOWN_00", "DICT", "TWIN_STATE", "TWIN_EVENTS", "TWIN_CMD"):
                await new.whole(name)
            await until_shown(world, "replica-behind", shown=False)
            await new.servers["b"].stop(signal.SIGKILL)
            await load.more()
        await config_goes_both_ways(world, rig, 2)
        await world.until(lambda report: lane(report).get("watermark") == load.kept // 250)
        assert lane(await world.report())["lost"] == 0
        assert await at_the_hub(world) == list(range(1, load.kept + 1))
    finally:
        await new.stop()
        world.hub = old

"""A hub moves to another machine while its vehicles send, and they follow.

Real hubs, real vehicle, real link. Not covered: a switch while the machines cannot see each other.
"""

from __future__ import annotations

import pytest

from tests.integration.migration import Load, another_hub
from tests.integration.readings import at_the_hub
from tests.integration.synced_hub import config_goes_both_ways, hub
from tests.support.rig.parts import RigError

from .conftest import World, lane

pytestmark = [pytest.mark.nats]


async def test_a_working_hub_moves_and_the_fleet_follows(world: World) -> None:
    """Begun and taken back, begun again and killed, gone on with, switched: all under load."""
    rig, link = await world.vehicle()
    await config_goes_both_ways(world, rig, 1)
    load = Load(rig)
    async with another_hub(world) as move:
        async with load.running():
            assert "The hub works on here" in await move.run("--prepare")
            known = lane(await world.report()).get("watermark", 0)
            await world.until(lambda report: lane(report).get("watermark", 0) > known)
            assert "deleted UP_00 there" in await move.run("--abort")
            await move.killed_in_the_middle()
            assert "UP_00: " in await move.run()
            with pytest.raises(RigError, match="moves, or has moved"):
                await hub(world, "up")
            await move.follow(link)
            await load.more()
        await config_goes_both_ways(world, rig, 2)
        assert "deleted UP_00 here" in await move.run("--remove")
        await world.until(lambda report: lane(report).get("watermark") == load.kept // 250)
        assert b"up_is_not_as_it_was_read" not in move.new.control.logged()
        assert lane(await world.report())["lost"] == 0
        assert await at_the_hub(world) == list(range(1, load.kept + 1))

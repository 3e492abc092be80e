"""The hub loses what it held, and the real agent appends it again: nothing is missing, nothing twice."""

from __future__ import annotations

import signal

import pytest

from backhaul_agent.client import connect
from tests.integration.hub_api import api, in_up
from tests.integration.readings import keep
from tests.support.rig.parts import wait_for_log

from .conftest import World, lane, vouched

pytestmark = [pytest.mark.nats]
FRAMES = 20


async def test_what_a_purge_took_is_appended_again_between_new_readings(world: World) -> None:
    rig, _ = await world.vehicle()
    async with connect(rig.url) as agent:
        await keep(agent, 1, 250 * FRAMES)
        await world.until(lambda report: lane(report).get("watermark", 0) == FRAMES)
        await api(world, "STREAM.PURGE.UP_00", {"keep": 5})
        await wait_for_log(world.hub.control, '"reasons": ["purged"]')
        await keep(agent, 250 * FRAMES + 1, 250 * 4)
        report = await world.until(
            lambda report: (
                lane(report).get("watermark") == FRAMES + 4 and lane(report).get("lost") == 0
            )
        )
    assert lane(report)["gaps"] == []
    assert lane(report)["explained"] == []
    assert set(await in_up(world)) == set(range(1, FRAMES + 5))


async def test_an_agent_killed_while_it_appends_again_goes_on(world: World) -> None:
    rig, _ = await world.vehicle()
    async with connect(rig.url) as agent:
        await keep(agent, 1, 250 * FRAMES)
        await world.until(lambda report: lane(report).get("watermark", 0) == FRAMES)
        await api(world, "STREAM.PURGE.UP_00", {"keep": 5})
        await wait_for_log(rig.agent, '"event": "resending"')
    await rig.agent.stop(signal.SIGKILL)
    await rig.start_agent()
    await vouched(rig)
    async with connect(rig.url) as agent:
        await keep(agent, 250 * FRAMES + 1, 250)
        await world.until(
            lambda report: (
                lane(report).get("watermark") == FRAMES + 1 and lane(report).get("lost") == 0
            )
        )
    assert set(await in_up(world)) == set(range(1, FRAMES + 2))

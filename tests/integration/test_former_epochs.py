"""A hub whose registry was put back says of a former epoch less than is so: the vehicle hears the rest soon.

Nothing of the vehicle's link is touched meanwhile: nothing there makes it ask.
"""

from __future__ import annotations

import asyncio
import shutil

import pytest

from backhaul_agent.client import connect
from tests.integration.epochs import status_of
from tests.integration.readings import confirmed, keep

from .conftest import World, lane

pytestmark = [pytest.mark.nats]
SOON_S = 20.0  # a busy machine's control plane takes seconds to start; nobody asks for minutes


async def owed(rig: object) -> int:
    return int((await status_of(rig))["ledger"]["former_epochs_owed"])  # type: ignore[arg-type]


async def test_a_former_epoch_is_not_owed_for_longer_than_the_hub_lacks_it(world: World) -> None:
    rig, relay = await world.vehicle()
    db, older = world.hub.directory / "hub.db", world.directory / "hub.db"
    async with connect(rig.url) as agent:
        await keep(agent, 1, 500)
        await confirmed(world, rig, 2)
        await world.hub.control.stop()
        shutil.copy(db, older)
        await world.hub.start_control()
        await keep(agent, 501, 500)
        await confirmed(world, rig, 4)
    former = (await status_of(rig))["epoch"]
    await relay.cut()
    await rig.agent.stop()
    await rig.start_agent()
    async with connect(rig.url) as agent:  # nobody vouches for its epoch: it opens another
        await keep(agent, 1001, 500)
    await relay.heal()
    await confirmed(world, rig, 2)
    report = await world.until(lambda report: lane(report)["epoch"] != former)
    current = lane(report)["epoch"]
    while await owed(rig):  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    await world.hub.control.stop()
    db.unlink()
    for each in world.hub.directory.glob("hub.db-*"):
        each.unlink()
    shutil.copy(older, db)
    await world.hub.start_control()
    await world.until(
        lambda report: lane(report).get("epoch") == current and lane(report)["watermark"] == 2
    )
    loop = asyncio.get_running_loop()
    fell = False
    end_s = loop.time() + SOON_S
    while loop.time() < end_s:
        lacking = await owed(rig)
        fell = fell or bool(lacking)
        if fell and not lacking:
            return
        await asyncio.sleep(0.02)
    assert not fell, "the hub holds everything, and the vehicle does not hear of it"

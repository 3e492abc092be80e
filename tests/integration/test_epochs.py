"""The ledger is lost, or goes back in time: a new epoch, every point once, and what is gone is named.

Real hub, real leaf, real agent. Not covered: two agents on one vehicle.
"""

from __future__ import annotations

import asyncio
import json
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from backhaul_agent.client import connect
from backhaul_codec import Opaque, decode
from backhaul_hub.config import load
from backhaul_hub.control.control_plane import ControlPlane
from tests.integration.epochs import (
    HOUR_S,
    ShiftedClock,
    completeness,
    copy,
    hour_of,
    ledger_of,
    now_s,
    status_of,
    until,
)
from tests.integration.readings import arrive, at_the_hub, confirmed, keep, points
from tests.support.rig.parts import run_to_end, wait_for_log

from .conftest import DEADLINE_S, World, lane, vouched

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.rig.parts import DeviceRig

pytestmark = [pytest.mark.nats]


async def epoch_words(world: World) -> list[dict[str, Any]]:
    """Return what vehicles have said of epochs that began."""
    client = await world.hub_client()
    jetstream = client.jetstream(prefix="upapi")
    last = (await jetstream.stream_info("UP_00")).state.last_seq
    words = []
    for seq in range(1, last + 1):
        message = await jetstream.get_msg("UP_00", seq, direct=True)
        if message.subject == "up.VID-001.e.epoch" and message.data is not None:
            (point,) = decode(message.data, node="-", type="-", key="").points
            assert isinstance(point.value, Opaque)
            words.append(json.loads(point.value.data))
    return words


async def test_a_deleted_ledger_leaves_a_named_hole(world: World) -> None:
    """What only the deleted ledger had is gone; the hub knows of it by the vehicle's last mark."""
    began_s = now_s()
    rig, relay = await world.vehicle()
    async with connect(rig.url) as agent:
        await keep(agent, 1, 1000)
        await confirmed(world, rig, 4)
    epoch = (await status_of(rig))["epoch"]
    await relay.cut()
    async with connect(rig.url) as agent:
        await keep(agent, 1001, 500)
    await rig.stop()  # the mark of the stop, which says that bulk went to 6, is in OUT
    await run_to_end(["rm", "-rf", str(ledger_of(rig))])
    ledger_of(rig).mkdir()
    client = rig.agent_toml.parent / "backhaul-leaf"
    await run_to_end(["find", str(client), "-path", "*OUT_bulk*", "-name", "*.blk", "-delete"])
    await rig.start()
    async with connect(rig.url) as agent:
        await keep(agent, 1501, 500)
    await relay.heal()
    await world.until(lambda report: lane(report).get("epoch") not in (None, epoch))
    wanted = {*range(1, 1001), *range(1501, 2001)}
    found: list[int] = []
    async with asyncio.timeout(DEADLINE_S):
        while not wanted <= set(found):
            found = await at_the_hub(world)
    assert len(found) == len(set(found))
    named: list[dict[str, Any]] = []
    for _ in range(300):
        named = [
            gap
            for hour in await completeness(world, hour_of(began_s), now_s() + 1)
            for gap in hour["explained"] + hour["missing"]
            if (gap["lane"], gap["epoch"], bool(gap["high"])) == ("bulk", epoch, True)
        ]
        if named and (named[0]["low"], named[-1]["high"]) == (5, 6):
            return
        await asyncio.sleep(0.1)
    pytest.fail(f"never named: {named}")


async def test_a_ledger_from_an_old_copy_loses_and_doubles_nothing(world: World) -> None:
    """More was kept and sent after the copy; then points are kept before the link comes up."""
    rig, relay = await world.vehicle()
    older = await copied_with_one_staged(world, rig)
    async with connect(rig.url) as agent:
        await keep(agent, 1002, 1000)
        await arrive(world, 2001)
    await relay.cut()
    await rig.agent.stop(signal.SIGKILL)
    await copy(older, ledger_of(rig))
    await rig.start_agent()
    async with connect(rig.url) as agent:
        await keep(agent, 2002, 500)
    await relay.heal()
    await arrive(world, 2501)
    await judged(rig)  # the point that was staged is here already: its first copy
    assert (await status_of(rig))["ledger"]["quarantined_rows"] == 0
    await wait_for_log(world.hub.control, '"event": "ledger_replaced"')
    assert await epoch_words(world)
    await wait_for_log(rig.agent, '"event": "staged_points_sent_before"')
    assert await at_the_hub(world) == list(range(1, 2502))


async def test_a_ledger_put_back_twice_doubles_nothing(world: World) -> None:
    """What was staged in the copy is sent in an epoch of which the copy, put back again, knows nothing."""
    rig, _ = await world.vehicle()
    older = await copied_with_one_staged(world, rig)
    async with connect(rig.url) as agent:
        other = [replace(point, node="cabin") for point in points(1002, 250)]
        await agent.publish_batch("cabin", other)
    async with asyncio.timeout(DEADLINE_S):
        while 1251 not in await at_the_hub(world):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    for first in (1252, 1502):
        await rig.agent.stop(signal.SIGKILL)
        await copy(older, ledger_of(rig))
        await rig.start_agent()
        await judged(rig)
        async with connect(rig.url) as agent:
            await keep(agent, first, 250)  # what was staged, and may go, goes with it
        await arrive(world, first + 249)


async def copied_with_one_staged(world: World, rig: DeviceRig) -> Path:
    """Return a copy of a ledger whose points 1 to 1,000 the hub has, and whose last, 1,001, is staged."""
    await rig.agent.stop()
    with rig.agent_toml.open("a") as config:
        config.write("\n[frame]\nage_s_max = 600.0\n")  # what is staged stays so
    await rig.start_agent()
    await vouched(rig)
    async with connect(rig.url) as agent:
        await keep(agent, 1, 1000)
        await confirmed(world, rig, 4)
        await agent.publish_batch("battery", points(1001, 1))
    await rig.agent.stop(signal.SIGKILL)
    older = rig.agent_toml.parent / "older"
    await copy(ledger_of(rig), older)
    await rig.start_agent()
    await vouched(rig)
    return older


async def judged(rig: DeviceRig) -> None:
    """Wait until it is known what became of what was staged."""
    async with asyncio.timeout(DEADLINE_S):
        while (await status_of(rig))["ledger"]["suspect_points"]:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def test_a_hub_that_knows_more_is_believed_at_the_start(world: World) -> None:
    """The whole disk put back, link up: nothing on the vehicle can tell, but the hub can."""
    rig, _ = await world.vehicle()
    async with connect(rig.url) as agent:
        await keep(agent, 1, 1000)
        await confirmed(world, rig, 4)
    await rig.stop()
    parts = ("backhaul-agent", "backhaul-leaf")
    home = rig.agent_toml.parent
    for part in parts:
        await copy(home / part, home / f"older-{part}")
    await rig.start()
    await vouched(rig)
    async with connect(rig.url) as agent:
        await keep(agent, 1001, 1000)
        await arrive(world, 2000)
    await rig.stop()
    for part in parts:
        await copy(home / f"older-{part}", home / part)
    await rig.start()
    await vouched(rig)
    async with connect(rig.url) as agent:
        await keep(agent, 2001, 500)
    await arrive(world, 2500)
    await wait_for_log(world.hub.control, '"event": "ledger_replaced"')
    # By its answer about the epoch, or by a watermark that comes before.
    assert any("the hub knows" in word["why"] for word in await epoch_words(world))


async def test_a_restart_over_a_link_that_is_up_keeps_its_epoch(world: World) -> None:
    rig, _ = await world.vehicle()
    async with connect(rig.url) as agent:
        await keep(agent, 1, 500)
        await confirmed(world, rig, 2)
    epoch = (await status_of(rig))["epoch"]
    for first in (501, 1001):
        await rig.agent.stop(signal.SIGKILL)
        await rig.start_agent()
        await vouched(rig)
        async with connect(rig.url) as agent:
            await keep(agent, first, 500)
    await arrive(world, 1500)
    assert (await status_of(rig))["epoch"] == epoch
    assert await epoch_words(world) == []


async def test_a_leaf_store_put_back_while_the_agent_lives(world: World) -> None:
    """Copy the store, publish, kill -9 the leaf, put the copy back, publish again."""
    rig, _ = await world.vehicle()
    store = rig.agent_toml.parent / "backhaul-leaf"
    older = rig.agent_toml.parent / "older"
    async with connect(rig.url) as agent:
        await keep(agent, 1, 1000)
        await confirmed(world, rig, 4)
    await rig.leaf.stop()
    await copy(store, older)
    await rig.leaf.start()
    await rig.wait_agent()
    async with connect(rig.url) as agent:
        await keep(agent, 1001, 1000)
        await confirmed(world, rig, 8)
    await rig.leaf.stop(signal.SIGKILL)
    await copy(older, store)
    await rig.leaf.start()
    await rig.wait_agent()
    async with connect(rig.url) as agent:
        await keep(agent, 2001, 1000)
    await arrive(world, 3000)
    report = await world.until(lambda report: lane(report).get("watermark") == 12)
    assert lane(report)["gaps"] == []


async def test_an_agents_marks_make_a_complete_hour(world: World) -> None:
    """Three runs of a real agent, by a hub's clock two hours back, one, and right.

    The hour in the middle has marks of the real agent on both sides.
    """
    await world.hub.control.stop()
    clock = ShiftedClock(2)
    config = load(world.hub.directory)
    # Steps of hours are believed here, at both ends.
    config = structs.replace(config, clock=structs.replace(config.clock, max_step_s=1e6))
    plane = ControlPlane(world.hub.directory, config, clock)
    running = asyncio.create_task(plane.run())
    try:
        rig, _ = await world.vehicle()
        rig.agent_toml.write_text(f"{rig.agent_toml.read_text()}\n[clock]\nmax_step_s = 1e6\n")
        for first, hours in ((1, 1), (501, 0), (1001, 0)):
            async with connect(rig.url) as agent:
                await keep(agent, first, 500)
            await confirmed(world, rig, (first + 499) // 250)
            await rig.agent.stop()
            clock.hours = hours
            await rig.start_agent()
            await vouched(rig)
        await until(world, "complete", clock.hour_s - HOUR_S)
        assert await epoch_words(world) == []
    finally:
        plane.stop()
        await running
    now_ = await completeness(world, clock.hour_s, clock.hour_s + 1)
    assert [hour["state"] for hour in now_] == ["waiting"]

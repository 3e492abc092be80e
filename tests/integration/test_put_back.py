"""Ledger and leaf store put back, to one moment or to two: what is kept afterwards reaches the hub, once.

The hub goes on from what it had, and its source from a sequence that OUT gives out again. Real hub, real
leaf, real agent. Not covered: what stood in the ledger alone when it was put back, which is gone
(`test_epochs`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

import pytest

from backhaul_agent.client import connect
from tests.integration.epochs import copy
from tests.integration.older_copies import older, parts
from tests.integration.readings import arrive, confirmed, keep
from tests.support.rig.parts import run_to_end
from tests.support.rig.relay import Relay
from tests.support.rig.shaped_relay import ShapedRelay

from .conftest import DEADLINE_S, World, lane, vouched

if TYPE_CHECKING:
    from tests.support.rig.parts import DeviceRig

pytestmark = [pytest.mark.nats]
NEWER = 40  # frames of a newer epoch: on a slow link they wait in OUT for a while
FRAME = 250  # points; `keep` makes a frame of so many
# How many frames are kept before the older copy, between the two, and after the newer one.
FRAMES = {"older": 4, "newer": 3, "": 5}


class Back(NamedTuple):
    """Which copies are put back, and how many frames are kept then before the link is there.

    A vehicle without a copy of its ledger goes on with a new one. With as many frames as OUT was put back by,
    it ends where the hub's source stands: neither of them sees anything odd.
    """

    ledger: str
    leaf: str
    frames: int


BACKS = {
    "together-fewer": Back("older", "older", 6),
    "together-as-many": Back("older", "older", 8),
    "together-more": Back("older", "older", 11),
    "ledger-further-as-many": Back("older", "newer", 5),
    "ledger-further-more": Back("older", "newer", 8),
    "leaf-further-as-many": Back("newer", "older", 5),
    "ledger-gone-fewer": Back("", "older", 6),
    "ledger-gone-as-many": Back("", "older", 8),
}


@pytest.mark.parametrize("back", BACKS.values(), ids=BACKS)
async def test_what_is_kept_after_a_machine_was_put_back_arrives(world: World, back: Back) -> None:
    relay = Relay("127.0.0.1", world.hub.leaf_port)
    # Where nothing else tells the hub, the agent does after so long.
    rig, _ = await world.vehicle_behind(relay, stalled_after_s=3.0)
    kept = 0
    for name, frames in FRAMES.items():
        await vouched(rig)
        async with connect(rig.url) as agent:
            await keep(agent, kept + 1, frames * FRAME)
        kept += frames * FRAME
        await arrive(world, kept)
        await confirmed(world, rig, kept // FRAME)
        await rig.stop()
        if name:
            for part in parts(rig):
                await copy(part, older(part, name))
            await rig.start()
    await relay.cut()
    await put_back(rig, back)
    await rig.start()
    async with connect(rig.url) as agent:
        await keep(agent, kept + 1, back.frames * FRAME)
    kept += back.frames * FRAME
    await relay.heal()
    await arrive(world, kept)
    await world.until(
        # Of a lane that the hub has not heard of yet nothing is said.
        lambda report: all(lane(report, name=each).get("gaps") == [] for each in ("live", "bulk"))
    )


async def put_back(rig: DeviceRig, back: Back) -> None:
    """Put copies in the place of what does not run; no ledger where there is to be none."""
    ledger, leaf = parts(rig)
    await copy(older(leaf, back.leaf), leaf)
    if back.ledger:
        await copy(older(ledger, back.ledger), ledger)
        return
    for file in ledger.glob("ledger.db*"):
        file.unlink()


async def test_what_out_alone_holds_of_a_newer_epoch_is_sent_after_the_ledger_went_back(
    world: World,
) -> None:
    """The copy's epoch is over and OUT holds nothing of it: that does not say that OUT went back, too."""
    link = ShapedRelay("127.0.0.1", world.hub.leaf_port, rate_bytes_s=2500, round_trip_s=0.2)
    rig, relay = await world.vehicle_behind(link)
    ledger, leaf = parts(rig)
    async with connect(rig.url) as agent:
        await keep(agent, 1, 3 * FRAME)
        await confirmed(world, rig, 3)
        await rig.stop()
        await copy(ledger, older(ledger, "older"))
        await rig.start()
        await vouched(rig)
    async with connect(rig.url) as agent:
        await keep(agent, 3 * FRAME + 1, FRAME)
    await confirmed(world, rig, 4)
    await rig.stop()
    await run_to_end(["rm", "-rf", str(leaf)])
    await relay.cut()
    await rig.start()
    async with connect(rig.url) as agent:  # without a link: a new epoch
        await keep(agent, 4 * FRAME + 1, NEWER * FRAME)
    out = (await world.leaf_client(rig)).jetstream()
    async with asyncio.timeout(DEADLINE_S):
        while (await out.stream_info("OUT_bulk")).state.messages < NEWER:  # noqa: ASYNC110 - a server's
            await asyncio.sleep(0.05)
    await rig.stop()
    await copy(older(ledger, "older"), ledger)
    await relay.heal()
    await rig.start()
    await arrive(world, (4 + NEWER) * FRAME)
    assert b"out_adopted" in rig.agent.logged()

"""A vehicle that pushes is moved to another shard, gets another key, is shut out, and is enrolled anew."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from backhaul_codec import Point, encode_frame
from backhaul_codec.assurance.completeness import HOUR_NS, LEDGER_GONE, hours_between
from backhaul_codec.protocol.identity import decode_identity
from backhaul_codec.protocol.push import push_subject
from backhaul_hub.config import load
from backhaul_hub.db.store import Registry
from backhaul_hub.enrol.add_device import DeviceSettings
from backhaul_hub.lane_records.completeness import hour_reports_of
from backhaul_runtime.clock import SystemClock
from tests.integration.conditions import status
from tests.integration.enrolling import enrol, key_of, rotation
from tests.integration.readings import at_the_hub
from tests.integration.trickles import (
    BOTH,
    Trickle,
    all_confirmed,
    only_pushes,
    pushed,
    sources,
    trickling,
    until,
)
from tests.security.leaf_client import RawLeaf, forged
from tests.support.hub_acts import make_token
from tests.support.rig.parts import DeviceRig, program
from tests.support.stream_content import read_stream

if TYPE_CHECKING:
    from backhaul_codec.protocol.identity import Identity

    from .conftest import World

pytestmark = [pytest.mark.nats]
VID = "VID-004"
"""In shard 1 of two."""
THIEF = "VID-002"


async def test_given_another_key_and_moved_to_another_shard(world: World) -> None:
    rig, _ = await world.vehicle(VID)
    trickle = Trickle()
    async with trickling(rig, trickle) as agent:
        await pushed(agent, BOTH)
        await only_pushes(world)
        old = key_of(rig)
        await command(world, "rotate", VID)
        await world.until(lambda report: rotation(report, VID).get("state") == "done")
        assert key_of(rig) != old
        await pushed(agent, BOTH)
        await only_pushes(world)
        await two_shards(world)
        await trickle.more(5)
        await pushed(agent, BOTH)
        await only_pushes(world, 1)
        assert await sources(world, 0) == []
        await trickle.more(5)
    await all_confirmed(world, rig, trickle.count, VID)
    await nothing_is_wrong(world)


async def test_shut_out_and_enrolled_anew_on_this_machine_and_on_another(world: World) -> None:
    """A thief knows the token of the vehicle that is shut out, and has another's login, which lets it name any subject."""
    rig, _ = await world.vehicle(VID)
    await command(world, "add-device", THIEF)
    revoked, thief = identity(world, VID), identity(world, THIEF)
    trickle = Trickle()
    async with trickling(rig, trickle) as agent:
        await pushed(agent, BOTH)
        await only_pushes(world)
        await shut_out(world)
        kept = trickle.count
        await trickle.more(5)
        await push_in_its_name(world, revoked, thief)
        # The next one may have been under way.
        assert max(await at_the_hub(world)) <= kept + 1
    await rig.stop()
    await enrol(rig, await anew(world))
    await rig.start()
    async with trickling(rig, trickle) as agent:
        await pushed(agent, BOTH)
        await only_pushes(world)
        await push_in_its_name(world, revoked, thief)
        await trickle.more(5)
    await all_confirmed(world, rig, trickle.count, VID)
    await shut_out(world)
    await push_in_its_name(world, revoked, thief)
    async with trickling(rig, Trickle(10_000)) as agent:
        await pushed(agent, [])
    other = DeviceRig.of(world.hub, VID, world.directory / "another")
    other.agent_toml.parent.mkdir()
    try:
        await enrol(other, await anew(world))
        await other.start()
        async with trickling(other, trickle) as agent:
            await pushed(agent, BOTH)
            await only_pushes(world)
        await all_confirmed(world, other, trickle.count, VID)
        await nothing_is_wrong(world, "machine-changed", "link-down")
    finally:
        await other.stop()
    assert "forged" not in str(await read_stream(await world.hub_client(), "UP_00"))


async def push_in_its_name(world: World, revoked: Identity, thief: Identity) -> None:
    """Have a handwritten leaf push as a vehicle that was shut out, by its login, and by that of another."""
    leaf = await RawLeaf.of(revoked, "127.0.0.1", world.hub.leaf_port).open()
    assert not await leaf.logged_in()
    await leaf.close()
    body = encode_frame([Point("gps", "speed", 1, 1.0)], epoch=9, seq=1)
    subject = push_subject(VID, revoked.token, "f.forged")
    for said, reply in (
        (subject, ""),
        (push_subject(THIEF, thief.token, "f.gps"), forged(subject)),
    ):
        leaf = await RawLeaf.of(thief, "127.0.0.1", world.hub.leaf_port).open()
        assert await leaf.logged_in()
        await leaf.publish(said, body, reply=reply)
        await leaf.flush()
        await leaf.close()


def identity(world: World, device: str) -> Identity:
    path = world.hub.directory / "devices" / device / "identity.json"
    return decode_identity(path.read_bytes())


async def two_shards(world: World) -> None:
    await world.hub.control.stop()
    path = world.hub.directory / "hub.toml"
    path.write_text(path.read_text().replace("shards = 1", "shards = 2"))
    world.shards = 2
    await world.hub.start_control()


async def command(world: World, *words: str) -> None:
    await world.hub.run([program("backhaul-hub"), *words, "--dir", str(world.hub.directory)])


async def anew(world: World) -> str:
    """Return a token for the vehicle."""
    directory = world.hub.directory
    made = await make_token(
        *(directory, load(directory), SystemClock(), VID, DeviceSettings()), expires_s=3600.0
    )
    return made.word


async def shut_out(world: World) -> None:
    await command(world, "revoke", VID)

    async def none() -> bool:
        return await sources(world) == []

    await until(none, "nothing of it is sourced")


async def nothing_is_wrong(world: World, *expected: str) -> None:
    """Check that no condition but those expected stays, and that no hour has anything missing."""
    shown: list[str] = []
    for _ in range(300):
        async with world.hub.connection() as client:
            said = await status(client)
        shown = [each["code"] for each in said["conditions"] if each["code"] not in expected]
        if said["looked_ns"] and not shown:
            break
        await asyncio.sleep(0.1)
    assert shown == []
    now_ns = SystemClock().now_ns()
    async with await Registry.open_existing(world.hub.directory / "hub.db") as registry:
        hours = hours_between(now_ns - HOUR_NS, now_ns)
        reports = await hour_reports_of(registry, VID, hours)
    assert reports
    assert [each.missing for each in reports if each.missing] == []
    # What another machine kept and never sent, nobody knows.
    reasons = {each.reason for report in reports for each in report.explained}
    assert reasons == ({LEDGER_GONE} if "machine-changed" in expected else set())

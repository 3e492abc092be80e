"""Enrolment, rotation and people's rights where the way is another: TLS, a slow link, a cluster.

What is decided is tested in `test_enrolment.py` and tests/hub; here it is about getting there.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import msgspec
import nats
import pytest

from backhaul_agent.client import connect
from backhaul_codec.protocol.identity import decode_identity
from backhaul_hub.config import load
from backhaul_hub.enrol.add_device import DeviceSettings
from backhaul_hub.errors import HubError
from backhaul_hub.lane_names import deliver_subject, down_durable
from backhaul_hub.people.login import connect_person, read_person
from backhaul_hub.shards import api_subject
from backhaul_runtime.clock import SystemClock
from tests.integration.enrolling import enrol, key_of, rotation
from tests.integration.tls_rig import TlsRig
from tests.security.leaf_client import RawLeaf, forged
from tests.support.hub_acts import make_token
from tests.support.rig.cluster import NAMES, ClusterRig
from tests.support.rig.parts import DeviceRig, HubRig, program, wait_for_log
from tests.support.rig.shaped_relay import ShapedRelay
from tests.support.waiting import until

from .conftest import DEADLINE_S, World, lane

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.client import Client

    from backhaul_codec.protocol.identity import Identity

pytestmark = [pytest.mark.nats]
VID, OTHER = "VID-001", "VID-002"
SECRET = b"only VID-002 may know"


async def command(world: World, *words: str) -> None:
    await world.hub.run([program("backhaul-hub"), *words, "--dir", str(world.hub.directory)])


async def token(hub: HubRig, leaf_url: str = "") -> str:
    """Make a token; with ``leaf_url`` the vehicle asks there, and not where the hub is."""
    config = load(hub.directory)
    if leaf_url:
        fleet = msgspec.structs.replace(config.fleet, leaf_url=leaf_url)
        config = msgspec.structs.replace(config, fleet=fleet)
    settings = DeviceSettings()
    return (await make_token(hub.directory, config, SystemClock(), VID, settings, 3600.0)).word


async def another_key(world: World, rig: DeviceRig) -> None:
    """Have the vehicle's key changed over the air, and a reading arrive then."""
    old = key_of(rig)
    await world.until(lambda report: report["devices"][0]["link"]["up"])
    await command(world, "rotate", VID)
    await world.until(lambda report: rotation(report, VID).get("state") == "done")
    assert key_of(rig) != old
    async with connect(rig.url) as agent:
        await agent.publish("battery", "soc", 81.5, lane="live")
    await world.until(lambda report: lane(report, name="live").get("watermark", 0) >= 1)


async def vehicle(world: World, stack: AsyncExitStack) -> DeviceRig:
    """Return a vehicle that is not enrolled yet; it is stopped with the stack."""
    directory = world.directory / VID
    (directory / "backhaul-agent").mkdir(parents=True)
    rig = DeviceRig.of(world.hub, VID, directory)
    stack.push_async_callback(rig.stop)
    return rig


async def test_over_tls_and_a_link_of_20_kbit_s_and_600_ms(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        world = await World(tmp_path, stack, TlsRig).start()
        rig = await vehicle(world, stack)
        link = ShapedRelay("127.0.0.1", world.hub.leaf_port, rate_bytes_s=2500, round_trip_s=0.6)
        async with link:
            await enrol(rig, await token(world.hub, f"tls://127.0.0.1:{link.port}"))
            assert link.accepted, "it came over this link"
        assert "ca_file" in rig.agent_toml.with_name("leaf.conf").read_text()
        await rig.start()
        await another_key(world, rig)
        for device in (VID + "-thief", OTHER):
            await command(world, "add-device", device)
        await no_more_than_its_own(world, identity(world, VID + "-thief"), identity(world, OTHER))


def identity(world: World, device: str) -> Identity:
    path = world.hub.directory / "devices" / device / "identity.json"
    return decode_identity(path.read_bytes())


async def no_more_than_its_own(world: World, own: Identity, other: Identity) -> None:
    """Try a handful of attacks over TLS; all of them are tried without in tests/security."""
    trusted = ssl.create_default_context(cafile=str(world.hub.directory / "tls" / "ca.pem"))

    async def leaf(who: Identity, *, tls: bool = True) -> RawLeaf:
        raw = RawLeaf.of(who, "127.0.0.1", world.hub.leaf_port)
        raw.tls = trusted if tls else None
        return await raw.open()

    plain = await leaf(own, tls=False)
    assert not await plain.logged_in(), "without TLS nobody is let in"
    await plain.close()
    thief = await leaf(msgspec.structs.replace(other, seed=own.seed))
    assert not await thief.logged_in(), "another's JWT is no login without its key"
    await thief.close()

    honest = await leaf(other)
    await honest.listen(f"clkr.{other.device}.>", f"dn.{other.device}.>")
    body = json.dumps({"t1": 4242}).encode()
    for subject in (
        deliver_subject(other.device, other.token, "live"),
        f"clk.{other.device}",
        f"up.{other.device}.e.x",
        f"in.{other.device}.c.1",
        "$JS.API.STREAM.DELETE.UP_00",
        f"hubapi.CONSUMER.RESET.DOWN_00.{down_durable(other.device, other.token, '')}",
    ):
        # What a leaf may not publish ends its link: each has one of its own.
        for reply in ("", forged(subject)):
            raw = await leaf(own)
            assert await raw.logged_in()
            await raw.listen(f"dn.{other.device}.>", f"clkr.{other.device}.>", "in.>", ">")
            await raw.publish(f"clk.{own.device}" if reply else subject, body, reply=reply)
            await raw.flush()
            assert raw.heard_of(other.device, SECRET) == []
            await raw.close()
    # What each may ask is answered, and with these answers all of the above has been seen to.
    for who, raw in ((own, await leaf(own)), (other, honest)):
        answered = f"clkr.{who.device}.{who.token}"
        await raw.listen(answered)
        await raw.publish(f"clk.{who.device}", body)
        await raw.hear(lambda heard, answered=answered: heard.subject == answered)  # type: ignore[misc]
        await raw.close()
    assert len(honest.heard) == 1
    assert await stored(world, "UP_00", f"up.{VID}.>"), "what is there is seen"
    assert await stored(world, "UP_00", f"up.{other.device}.>") == {}
    assert await stored(world, "DOWN_00", f"in.{other.device}.c.1") == {}


async def stored(world: World, stream: str, subjects: str) -> dict[str, int]:
    """Return how many messages a stream, which is there, holds of each of these subjects."""
    client = await world.hub_client()
    question = json.dumps({"subjects_filter": subjects}).encode()
    answer = await client.request(api_subject(f"STREAM.INFO.{stream}"), question, timeout=30)
    return json.loads(answer.data)["state"].get("subjects") or {}


async def asked(client: Client, question: str) -> Any:
    """Ask until it is answered: of a cluster the answer may overtake the news of who listens for it."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            with contextlib.suppress(nats.errors.Error):
                return json.loads((await client.request(question, b"{}", timeout=5)).data)


async def test_at_a_cluster_of_three_whichever_server_is_asked(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        world = await World(tmp_path, stack, ClusterRig).start()
        assert isinstance(world.hub, ClusterRig)
        rig = await vehicle(world, stack)
        await enrol(rig, await token(world.hub))
        await rig.start()
        await another_key(world, rig)

        creds = tmp_path / "anna.creds"
        await command(world, "user", "add", "anna", "--group", VID, "--out", str(creds))
        anna = read_person(creds)
        clients = [await connect_person(each, creds, anna) for each in world.hub.addresses()]
        for client in clients:
            stack.push_async_callback(client.close)
            said = await asked(client, anna.ask("devices"))
            assert [each["device"] for each in said["devices"]] == [VID]
        await command(world, "user", "rm", "anna")
        await until(lambda: not any(client.is_connected for client in clients), "all are cut")
        for address in world.hub.addresses():
            with pytest.raises(HubError):
                await connect_person(address, creds, anna)

        # The vehicle dials one after another, and none lets it in.
        seen = rig.leaf.logged_bytes
        await command(world, "revoke", VID)
        await world.until(lambda report: not report["devices"][0]["link"]["up"])
        for _ in NAMES:
            await wait_for_log(rig.leaf, "Authorization Violation", seen)
            seen = rig.leaf.logged_bytes
        assert not (await world.report())["devices"][0]["link"]["up"]

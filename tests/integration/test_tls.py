"""A hub that speaks TLS: vehicles, control plane, jobs and commands reach it, over a slow link too."""

from __future__ import annotations

import asyncio
import json
import ssl
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from backhaul_agent.client import connect
from backhaul_hub.errors import HubError
from backhaul_hub.nats.system_requests import ask_all
from backhaul_hub.people.login import connect_person, read_person
from backhaul_hub.tls.files import former_authorities
from backhaul_spark.cli._options import HubPlace
from backhaul_spark.errors import LoginRefusedError
from backhaul_spark.nats.connection import Connection
from backhaul_spark.nats.endpoint import endpoint_from
from tests.integration.tls_rig import TlsRig
from tests.support.rig.cluster import NAMES, ClusterRig
from tests.support.rig.parts import program, run_to_end
from tests.support.rig.relay import Relay
from tests.support.rig.shaped_relay import ShapedRelay

from .conftest import World, lane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.aio.client import Client

pytestmark = [pytest.mark.nats]


class TlsCluster(TlsRig, ClusterRig):
    """Three servers, which speak TLS to one another."""


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A running hub that speaks TLS."""
    async with AsyncExitStack() as stack:
        yield await World(tmp_path, stack, TlsRig).start()


async def links(system: Client) -> dict[str, int]:
    """The leafs' connections: name to id."""
    (answer,) = await ask_all(system, "LEAFZ", 1)
    return {leaf["name"]: leaf["id"] for leaf in answer["data"]["leafs"]}


async def readings(world: World, url: str, count: int, *, of: int) -> None:
    """Publish readings on a vehicle and wait until the hub holds all there were."""
    async with asyncio.timeout(120), connect(url) as agent:
        for number in range(count):
            await agent.publish("battery", "soc", float(number), lane="live")
    await world.until(lambda report: lane(report, name="live").get("watermark", 0) >= of)


async def hub(world: World, *words: str) -> str:
    """Run a command of the hub's."""
    return await run_to_end([program("backhaul-hub"), *words, "--dir", str(world.hub.directory)])


async def test_everybody_reaches_it_and_certificates_change_under_them(world: World) -> None:
    rig, _ = await world.vehicle_behind(Relay("127.0.0.1", world.hub.leaf_port))
    leaf_conf = (rig.agent_toml.parent / "leaf.conf").read_text()
    assert "tls://127.0.0.1" in leaf_conf
    assert "ca_file" in leaf_conf
    await readings(world, rig.url, 3, of=3)
    async with world.hub.connection("system") as system:
        before = await links(system)
        for words in (["renew"], ["renew", "--new-ca"]):
            assert "is new" in await hub(world, "tls", *words)
            await readings(world, rig.url, 3, of=6)
            assert await links(system) == before
    assert "VID-001" in await hub(world, "devices")
    creds = world.directory / "anna.creds"
    added = await hub(
        world, "user", "add", "anna", "--group", "VID-001", "--may", "read", "--out", str(creds)
    )
    anna = read_person(creds)
    ca = world.hub.directory / "tls" / "ca.pem"
    (address,) = world.hub.addresses()
    assert f"{ca}\nthen: backhaul-hub tree --creds anna.creds --server {address} --ca" in added
    await (await connect_person(address, creds, anna, ca)).close()
    with pytest.raises(HubError, match="CERTIFICATE_VERIFY_FAILED"):
        await connect_person(address, creds, anna)
    # How a vehicle is told of the new authority: its document is written anew.
    await hub(world, "add-device", "VID-001", "--per-device")
    document = world.hub.directory / "devices" / "VID-001" / "identity.json"
    assert json.loads(document.read_text())["ca"].count("BEGIN CERTIFICATE") == 2
    # A vehicle and a control plane that know the former authority alone come back.
    await world.hub.control.stop()
    await rig.leaf.stop()
    await world.hub.start_control()
    await rig.leaf.start()
    await world.until(lambda report: report["devices"][0]["link"]["up"])
    assert former_authorities(world.hub.directory) == 1

    options = HubPlace(str(world.hub.directory)).source()
    spark = endpoint_from(options)
    assert spark.tls
    connection = await asyncio.to_thread(Connection, spark)
    _, answer = await asyncio.to_thread(
        connection.request, f"{connection.api}.STREAM.INFO.UP_00", b""
    )
    connection.close()
    assert json.loads(answer)["config"]["name"] == "UP_00"
    stranger = endpoint_from(
        {**options, "tls_ca": str(ssl.get_default_verify_paths().openssl_cafile)}
    )
    with pytest.raises(LoginRefusedError, match="TLS"):
        await asyncio.to_thread(Connection, stranger)


async def test_a_link_of_20_kbit_s_and_600_ms_comes_up_and_carries_readings(world: World) -> None:
    link = ShapedRelay("127.0.0.1", world.hub.leaf_port, rate_bytes_s=2500, round_trip_s=0.6)
    rig, _ = await world.vehicle_behind(link)
    # A handshake that always takes too long is tried again for ever.
    await world.until(lambda report: report["devices"][0]["link"]["up"])
    await readings(world, rig.url, 3, of=3)


async def test_servers_of_a_cluster_meet_over_tls(tmp_path: Path) -> None:
    rig = TlsCluster(tmp_path / "hub")
    await rig.init()
    try:
        await asyncio.gather(*map(rig.start_server, NAMES))
        async with asyncio.timeout(60), rig.connection("system") as system:
            # One connection hears all of them: they are one cluster.
            while len(answers := await ask_all(system, "VARZ", len(NAMES))) < len(NAMES):  # noqa: ASYNC110
                await asyncio.sleep(0)
        for answer in answers:
            assert answer["data"]["cluster"]["tls_required"]
            assert "tls_cert_not_after" in answer["data"]["cluster"]
    finally:
        await rig.stop()

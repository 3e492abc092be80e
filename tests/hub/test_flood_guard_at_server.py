"""With real servers: acting on floods: who is kept out, when, and that nothing is heard meanwhile."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_hub.access.keys import read_keys
from backhaul_hub.access.push import jwts_there
from backhaul_hub.cli._act import done
from backhaul_hub.config import load
from backhaul_hub.control import ground
from backhaul_hub.control.control_plane import ControlPlane
from backhaul_hub.enrol.add_device import DeviceSettings
from backhaul_hub.flood.detector import FloodWatch, Goods, Suspension
from backhaul_hub.links.reception import Reception
from backhaul_hub.nats.jwt import body_of
from backhaul_hub.setup.hub_directory import create_hub
from backhaul_runtime.clock import SystemClock
from tests.support.hub_acts import create_device
from tests.support.hub_layout import local_layout
from tests.support.rig import patient
from tests.support.rig.parts import HubRig
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.client import Client

    from tests.support.nats_server import NatsServer

pytestmark = pytest.mark.nats

RUDE = "VID-666"


async def test_a_reception_hears_again_after_it_was_deaf(nats_server: NatsServer) -> None:
    heard: list[bytes] = []

    async def listen(client: Client) -> None:
        async def note(message: Any) -> None:
            heard.append(message.data)

        await client.subscribe("clk.*", cb=note)
        await client.flush()

    async def connect() -> Client:
        return await patient.connect(nats_server.url)

    reception, vehicle = Reception(connect), await connect()
    await reception.open(listen)
    await vehicle.publish("clk.VID-001", b"before")
    await until(lambda: heard == [b"before"])
    async with reception.deaf():
        await vehicle.publish("clk.VID-001", b"meanwhile")
        await vehicle.flush()
    await vehicle.publish("clk.VID-001", b"after")
    await until(lambda: heard == [b"before", b"after"])
    watching = asyncio.create_task(reception.watch())
    await asyncio.sleep(0)
    assert not watching.done()
    watching.cancel()
    await reception.close()
    await vehicle.close()


async def test_who_is_kept_out_stays_out_when_a_command_tells_the_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command builds the accounts from hub.db, which knows nothing of floods."""
    kept = {RUDE: Suspension(0, 1e12, Goods.BYTES, "a flood")}
    monkeypatch.setattr(FloodWatch, "all_suspended", lambda watch, now_s: kept)
    monkeypatch.setattr(ground, "_ACCOUNTS_INTERVAL_S", 3600.0)
    monkeypatch.setattr(
        "backhaul_hub.nats.system_requests._WAIT_S", 60.0
    )  # for the one that there is
    rig = HubRig(tmp_path / "hub")
    layout = local_layout(rig.client_port, rig.leaf_port)
    create_hub(rig.directory, layout)
    config, clock = load(rig.directory), SystemClock()
    await create_device(rig.directory, config, clock, RUDE, DeviceSettings())
    keys = read_keys(rig.directory)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(rig.server.stop)
        await rig.server.start()
        await rig.server.wait_listening(rig.client_port)
        system = await stack.enter_async_context(rig.connection("system"))
        plane = ControlPlane(rig.directory, config, clock)
        running = asyncio.create_task(plane.run())

        async def kept_out() -> bool:
            [fleet] = await jwts_there(system, keys, "FLEET", 1)
            assert not running.done()
            return bool(body_of(fleet)["nats"]["revocations"])

        try:
            async with asyncio.timeout(60):
                await until(kept_out)
                told = await done(rig.directory, "reload", {})
                assert told == {"problem": ""}
                await until(kept_out)
        finally:
            plane.stop()
            await asyncio.wait([running], timeout=30)

"""Enrolled vehicles that flood the hub, and what an honest one notices of it: nothing is lost."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from backhaul_agent.client import connect
from tests.support.rig.parts import DeviceRig, HubRig, wait_for_log
from tests.support.rude_leaf import RudeVehicle
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.client import Client

pytestmark = pytest.mark.nats
DEVICE = "VID-001"
KINDS = {"VID-666": "small messages", "VID-667": "questions for the time"}
EVENTS = 20
# No more than a busy machine of a continuous integration can make of it.
BYTES_S = 4e6
SETTINGS = """
[flood]
messages_s_max = 5000.0
messages_burst = 20000.0
suspend_s = 1.0
[health]
interval_s = 0.2
"""


async def conditions(hub: Client) -> set[tuple[str, str]]:
    """Return what `backhaul-hub status` shows: code and device."""
    answer = json.loads((await hub.request("hub.status", b"", timeout=30)).data)
    return {(each["code"], each["device"]) for each in answer["conditions"]}


async def held(hub: Client) -> tuple[int, bool]:
    """Return how many live messages of the honest vehicle the hub holds, and whether it is up."""
    for each in json.loads((await hub.request("hub.devices", b"", timeout=30)).data)["devices"]:
        if each["device"] == DEVICE:
            return each["lanes"].get("live", {}).get("watermark", 0), each["link"]["up"]
    return 0, False


def cut(rig: HubRig) -> set[str]:
    """Return whose links have ended, as the hub's log says."""
    whole = rig.control.logged().rpartition(b"\n")[0]
    said = [json.loads(line) for line in whole.splitlines()]
    return {each["device"] for each in said if each["event"] == "leaf_disconnected"}


async def test_vehicles_that_flood_are_kept_out_and_no_other_loses_anything(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        rig = HubRig(tmp_path / "hub", watermark_interval_s=0.2)
        await rig.init()
        toml = rig.directory / "hub.toml"
        toml.write_text(toml.read_text() + SETTINGS)
        stack.push_async_callback(rig.stop)
        await rig.start()
        honest = await DeviceRig.add(rig, DEVICE, tmp_path / DEVICE)
        stack.push_async_callback(honest.stop)
        await honest.start()
        rude = {each: await RudeVehicle.enrol(rig, each, KINDS[each], BYTES_S) for each in KINDS}
        hub = await stack.enter_async_context(rig.connection())
        agent = await stack.enter_async_context(connect(honest.url))
        for vehicle in rude.values():
            stack.push_async_callback(vehicle.part.stop)
            await vehicle.part.start()
        for number in range(EVENTS):
            await agent.event(f"beside-{number}")
        for device, vehicle in rude.items():
            await until(
                lambda: "User Authentication Revoked" in vehicle.report.get("complaints", ()),  # noqa: B023
                f"{device}: a refused login",
            )
            while ("device-flooding", device) not in await conditions(hub):
                rig.control.assert_alive()
        while (await held(hub))[0] < EVENTS:
            rig.control.assert_alive()
        assert (await held(hub))[1], "the honest vehicle is connected"
        await until(lambda: cut(rig) >= rude.keys(), "the hub has heard that both were cut")
        assert cut(rig) == rude.keys(), "its link was never touched"
        # They may come back once their time is over, and are kept out for longer when they go on.
        for device, vehicle in rude.items():
            await until(lambda: vehicle.report["connects"] > 1, f"{device}: a second login")  # noqa: B023
        await wait_for_log(rig.control, '"kept_out_s": 2.0')

"""Accounts that change while vehicles are connected, and devices that are added meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backhaul_agent.client import connect
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.nats.system_requests import ask_all
from tests.support.rig.parts import program, run_to_end
from tests.support.waiting import until

from .conftest import DEADLINE_S, World, lane

if TYPE_CHECKING:
    from nats.aio.msg import Msg

pytestmark = pytest.mark.nats

# More than the window of 64: the rest comes only if what came is acknowledged.
MESSAGES = 200


async def test_what_the_hub_sends_goes_on_after_another_device_was_added(world: World) -> None:
    vehicle, _ = await world.vehicle()
    await world.until(lambda report: report["devices"][0]["link"]["up"])
    hub = JetStreamApi(await world.hub_client())
    heard: set[str] = set()

    async def hear(message: Msg) -> None:
        heard.add(message.subject.removeprefix("agent.in."))

    leaf = await world.leaf_client(vehicle)
    await leaf.subscribe("agent.in.>", cb=hear)
    await leaf.flush()
    await hub.publish("in.VID-001.p.gps.first.%", b"x")
    await until(lambda: "p.gps.first.%" in heard)
    connected = (await world.report())["devices"][0]["link"]["since_ns"]

    add = [program("backhaul-hub"), "add-device", "VID-002", "--dir", str(world.hub.directory)]
    await run_to_end([*add, "--per-node", "--node", "battery"])
    subjects = {f"p.gps.k{number}.%" for number in range(MESSAGES)}
    for subject in subjects:
        await hub.publish(f"in.VID-001.{subject}", b"x")
    await until(lambda: subjects <= heard, "all of it has come")
    assert (await world.report())["devices"][0]["link"]["since_ns"] == connected, "no link was cut"


async def test_a_device_added_while_the_control_plane_is_away_connects_at_once(
    world: World,
) -> None:
    await world.hub.control.stop()
    vehicle, _ = await world.vehicle()
    system = await world.hub_client("system")

    async def connected() -> bool:
        answers = await ask_all(system, "LEAFZ", 1)
        names = [leaf["name"] for leaf in answers[0]["data"].get("leafs") or []]
        return any(name.startswith("VID-001-") for name in names)

    await until(connected, deadline_s=DEADLINE_S)
    await world.hub.start_control()
    async with connect(vehicle.url) as agent:
        await agent.publish("battery", "soc", 81.2)
    await world.until(lambda report: lane(report, name="bulk").get("watermark") == 1)

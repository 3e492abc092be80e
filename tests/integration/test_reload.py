"""A hub's server that reads its configuration again while vehicles are connected."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backhaul_hub.jetstream import JetStreamApi
from demo.rig import program, run_to_end
from tests.support.waiting import until

if TYPE_CHECKING:
    from nats.aio.msg import Msg

    from .conftest import World

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

    await (await world.connect(vehicle.url)).subscribe("agent.in.>", cb=hear)
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

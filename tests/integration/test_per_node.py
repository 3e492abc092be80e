"""Nodes with streams of their own beside nodes that share, over links that fail: all of it, once.

Modelled: the link cut and healed, named and unnamed nodes, both directions, a device that is switched
from shared streams to a node's own and back, with a backlog and the agent away each time.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from backhaul_agent.client import connect
from backhaul_agent.client.config import ConfigClient
from backhaul_codec import Point
from backhaul_codec.subjects import parse_uplink
from backhaul_codec.wire.addressed import decode_addressed
from backhaul_codec.wire.plain_reader import PlainReader
from tests.integration.ends import Ends
from tests.support.rig.parts import program, run_to_end

from .conftest import DEADLINE_S, World, lane

if TYPE_CHECKING:
    from tests.support.rig.parts import DeviceRig
    from tests.support.rig.relay import Relay

pytestmark = [pytest.mark.nats]
NODES = ("battery", "cabin", "front left")
OWN = ("battery", "front left")
OWN_LANES = {"n_battery": "battery", "n_front%20left": "front left"}


class Reading(NamedTuple):
    """A point as it was published, and as it must be found."""

    device: str
    node: str
    type: str
    number: int


class Vehicle:
    """A vehicle, and all that was kept on it."""

    def __init__(self, rig: DeviceRig, relay: Relay) -> None:
        self.rig = rig
        self.relay = relay
        self.kept: list[Reading] = []

    async def publish(self, count: int) -> None:
        """Have readings and states of all nodes kept, numbered from where they ended."""
        first = len(self.kept)
        async with connect(self.rig.url) as agent:
            for node in NODES:
                numbers = range(first, first + count)
                points = [Point(node, "soc", number, float(number)) for number in numbers]
                await agent.publish_batch(node, points)
                await agent.publish(node, "state", float(first), time=first, lane="live")
                self.kept += [Reading(self.rig.device, node, "soc", number) for number in numbers]
                self.kept.append(Reading(self.rig.device, node, "state", first))

    async def ends(self) -> dict[str, int]:
        """Return where each lane ends, once all that was kept is in a message."""
        async with connect(self.rig.url) as agent, asyncio.timeout(DEADLINE_S):
            while True:
                status = await agent.status()
                if not status["ledger"]["staged_points"]:
                    return {name: state["last_seq"] for name, state in status["lanes"].items()}
                await asyncio.sleep(0.05)


async def vehicle(world: World, device: str, *nodes: str) -> Vehicle:
    made = Vehicle(*await world.vehicle(device))
    if nodes:
        await name(world, made.rig, *nodes)
        await restart(made.rig)
    return made


async def name(world: World, rig: DeviceRig, *nodes: str) -> str:
    """Have exactly these nodes have streams of their own, and have the vehicle know."""
    which = [word for node in nodes for word in ("--node", node)]
    mode = ["--per-node", *which] if nodes else ["--per-device"]
    command = ["add-device", rig.device, "--dir", str(world.hub.directory), *mode]
    said = await run_to_end([program("backhaul-hub"), *command])
    await rig.enrol()
    return said


async def restart(rig: DeviceRig) -> None:
    """Have the leaf log in with what it may do now, and the agent know its nodes."""
    await rig.stop()
    await rig.start()


async def arrived(world: World) -> list[tuple[str, Reading]]:
    """Read UP from outside: lane and point of every message, each counted once."""
    client = await world.hub_client()
    jetstream = client.jetstream(prefix="upapi")
    last = (await jetstream.stream_info("UP_00")).state.last_seq
    seen: dict[tuple[str, str, int, int], list[tuple[str, Reading]]] = {}
    dictionaries = PlainReader()
    for seq in range(1, last + 1):
        message = await jetstream.get_msg("UP_00", seq, direct=True)
        assert message.subject is not None
        assert message.data is not None
        uplink = parse_uplink(message.subject)
        plain = dictionaries.take(uplink, message.data)
        if uplink.letter not in "fp":
            continue
        body, addressed = decode_addressed(uplink, plain)
        seen[uplink.device, uplink.lane, body.epoch, body.seq] = [
            (uplink.lane, Reading(uplink.device, point.node, point.type, point.time))
            for _, point in addressed
            if point.type in ("soc", "state")
        ]
    return [each for found in seen.values() for each in found]


async def everything_is_there_once(world: World, *vehicles: Vehicle) -> list[tuple[str, Reading]]:
    """Wait until the hub holds all lanes as far as they go, and compare."""
    for each in vehicles:
        ends = await each.ends()
        await world.until(
            lambda report, device=each.rig.device, ends=ends: all(  # type: ignore[misc]
                lane(report, device, name_).get("watermark", 0) >= last
                for name_, last in ends.items()
            )
        )
    found = await arrived(world)
    kept = [reading for each in vehicles for reading in each.kept]
    assert {reading for _, reading in found} == set(kept)
    # Heads that differ when the ends compare, for a write of the hub's on its way, are sent again.
    telemetry = [reading for _, reading in found if reading.type == "soc"]
    assert len(telemetry) == len(set(telemetry))
    return found


async def test_named_nodes_have_lanes_of_their_own_through_a_cut(world: World) -> None:
    own = await vehicle(world, "VID-001", *OWN)
    shared = await vehicle(world, "VID-002")
    hub = await world.hub_client()
    async with connect(own.rig.url) as agent:
        ends = Ends(world, own.rig, hub, ConfigClient(agent))
        for each in (own, shared):
            await each.publish(300)
        for node in NODES:
            await ends.set_at_hub(node, limit=1.0)
            await ends.vehicle.set(node, {"rate": 1.0})
        await ends.agree(lambda heads: len(heads) == 9)
        await everything_is_there_once(world, own, shared)
        for each in (own, shared):
            await each.relay.cut()
        await world.until(lambda report: not any(each["link"]["up"] for each in report["devices"]))
        for each in (own, shared):
            await each.publish(700)
        for node in NODES:
            await ends.set_at_hub(node, limit=2.0)
            await ends.vehicle.set(node, {"rate": 2.0})
        for each in (own, shared):
            await each.relay.heal()
        heads = await ends.agree(lambda heads: sum(head[0] == 2.0 for head in heads.values()) == 6)
        assert len(heads) == 9
    found = await everything_is_there_once(world, own, shared)
    for lane_, reading in found:
        if lane_ in OWN_LANES:
            assert (reading.device, reading.node) == ("VID-001", OWN_LANES[lane_])
        else:
            assert reading.device == "VID-002" or reading.node == "cabin"
    assert {lane_ for lane_, _ in found} == {"live", "bulk", *OWN_LANES}
    conflicts = json.loads((await hub.request("hub.conflicts", b"{}", timeout=30)).data)
    assert conflicts["conflicts"] == [], "they wrote different series"
    command = [program("backhaul-hub"), "devices", "--dir", str(world.hub.directory)]
    table = await run_to_end(command)
    share_a_row = f"{len(OWN_LANES)} nodes" in table  # where nothing is on its way in any
    assert share_a_row or all(lane_ in table for lane_ in OWN_LANES), table
    shown = json.loads(await run_to_end([*command, "--json"]))["devices"]
    assert [each["lanes"].keys() for each in shown] == [
        {"live", "bulk", *OWN_LANES}, {"live", "bulk"}
    ]  # fmt: skip


async def test_a_write_that_knew_the_hubs_is_no_conflict_in_a_nodes_lane(world: World) -> None:
    """What the vehicle had seen is said on the lane of the write: others may be behind or ahead."""
    own = await vehicle(world, "VID-001", *OWN)
    hub = await world.hub_client()
    async with connect(own.rig.url) as agent:
        ends = Ends(world, own.rig, hub, ConfigClient(agent))
        for number in range(5):
            await ends.set_at_hub("battery", rate=float(number))
            await ends.agree(lambda heads, n=number: heads["", "battery", "rate", ""][0] == n)  # type: ignore[misc]
            await ends.vehicle.set("battery", {"rate": number + 0.5})
            await ends.agree(lambda heads, n=number: heads["", "battery", "rate", ""][0] == n + 0.5)  # type: ignore[misc]
        conflicts = json.loads((await hub.request("hub.conflicts", b"{}", timeout=30)).data)
        assert conflicts["conflicts"] == []


async def test_a_device_is_switched_to_streams_for_a_node_and_back_without_loss(
    world: World,
) -> None:
    one = await vehicle(world, "VID-001")
    hub = await world.hub_client()
    await one.publish(100)
    await one.relay.cut()
    await one.publish(300)  # a backlog in the shared lanes
    await name(world, one.rig, "battery")
    await agree_on(world, one, hub, "before", heal=False)
    await one.publish(100)  # the agent does not know yet
    await restart(one.rig)
    await one.publish(300)  # a backlog in the node's lane as well
    await one.relay.heal()
    await agree_on(world, one, hub, "named")
    found = await everything_is_there_once(world, one)
    assert {reading.node for lane_, reading in found if lane_ == "n_battery"} == {"battery"}

    await one.relay.cut()
    await one.publish(300)
    said = await name(world, one.rig)
    assert "read until nothing of them is missing" in said
    await agree_on(world, one, hub, "leaving", heal=False)
    await one.publish(100)  # still in the node's lane
    await restart(one.rig)
    await one.publish(300)
    await one.relay.heal()
    await agree_on(world, one, hub, "back")
    found = await everything_is_there_once(world, one)
    newest = [lane_ for lane_, reading in found if reading == one.kept[-602]]
    assert newest == ["bulk"], "it shares again"
    assert "Dropped" in await name(world, one.rig)
    await one.publish(10)
    await agree_on(world, one, hub, "after")
    await everything_is_there_once(world, one)


async def agree_on(world: World, one: Vehicle, hub: Any, word: str, *, heal: bool = True) -> None:
    """Write at the hub; where the link is up, wait until both ends hold it."""
    async with connect(one.rig.url) as agent:
        ends = Ends(world, one.rig, hub, ConfigClient(agent))
        await ends.set_at_hub("battery", **{word: 1.0})
        if heal:
            await ends.agree(lambda heads: ("", "battery", word, "") in heads)

"""The hub's side of heads, writes and the tree, with real servers and the real command line."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from typing import TYPE_CHECKING, Any

import pytest
from nats.errors import Error as NatsError

from backhaul_agent.client import connect
from backhaul_agent.client.config import ConfigClient
from backhaul_codec.subjects import parse_uplink
from tests.integration.live_points import synced
from tests.integration.synced_hub import DEADLINE_S, hub, until, values

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.subscription import Subscription

    from .conftest import World

pytestmark = [pytest.mark.nats]


async def publish(vehicle: Client, subject: str, value: Any) -> None:
    """Have a point kept on the live lane."""
    await vehicle.request(f"app.{subject}", json.dumps({"value": value, "lane": "live"}).encode())


async def next_told(subscription: Subscription) -> tuple[str, dict[str, Any]]:
    """Return what is told next, but for the vehicle's shadow: that comes when the hub gets to it."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            message = await subscription.next_msg(timeout=None)
            if ".$.shadow." not in message.subject:
                return message.subject, json.loads(message.data)


async def test_a_vehicles_point_is_read_watched_and_outlives_a_kill(world: World) -> None:
    rig, _ = await world.vehicle()
    local, control = await world.leaf_client(rig), await world.hub_client()
    changes = await control.subscribe("hub.changed.VID-001")
    await control.flush()
    await publish(local, "battery.limit", 80.5)
    _, told = await next_told(changes)
    assert (told["node"], told["type"], told["value"], told["origin"]) == (
        "battery",
        "limit",
        80.5,
        "",
    )
    await world.hub.control.stop(signal.SIGKILL)
    await world.hub.start_control()

    async def kept() -> bool:
        return await values(world) == {"battery.limit": 80.5}

    await until(kept)


async def test_one_subscription_follows_a_subtree_while_devices_move_and_stream(
    world: World,
) -> None:
    rigs = {device: (await world.vehicle(device))[0] for device in ("VID-001", "VID-002")}
    local = {device: await world.leaf_client(rig) for device, rig in rigs.items()}
    for group, under in (("europe", "fleet"), ("berlin", "europe"), ("asia", "fleet")):
        await hub(world, "node", "create", group, "--under", under)
    await hub(world, "node", "move", "VID-001", "--to", "berlin")
    await hub(world, "node", "move", "VID-002", "--to", "asia")
    control = await world.hub_client()
    europe = await control.subscribe("up.europe.>")
    asia = await control.subscribe("up.asia.>")
    await control.flush()
    for number in range(3):
        for client in local.values():
            await publish(client, "battery.limit", number)
    for number in range(3):
        subject, point = await next_told(europe)
        assert subject == "up.europe.VID-001%2Fbattery.limit.%"
        assert (point["device"], point["node"], point["value"]) == ("VID-001", "battery", number)
        assert (await next_told(asia))[1]["device"] == "VID-002"

    # It moves while it streams: every reading is heard in one group, the last ones in the new.
    moving = asyncio.Event()

    async def stream() -> int:
        number = 100
        while not moving.is_set() or number < 110:
            await publish(local["VID-001"], "battery.limit", number)
            number += 1
        for last in range(number, number + 5):
            await publish(local["VID-001"], "battery.limit", last)
        return number + 5

    streaming = asyncio.create_task(stream())
    await hub(world, "node", "move", "VID-001", "--to", "asia")
    moving.set()
    end = await streaming
    heard: dict[str, list[float]] = {"europe": [], "asia": []}
    while not heard["asia"] or heard["asia"][-1] != end - 1:
        subject, point = await next_told(asia)
        if subject.endswith(".limit.%") and point["device"] == "VID-001":
            heard["asia"].append(point["value"])
    await control.flush()
    while europe.pending_msgs:
        message = await europe.next_msg()
        if message.subject.endswith(".limit.%"):
            heard["europe"].append(json.loads(message.data)["value"])
    assert heard["europe"] + heard["asia"] == [float(number) for number in range(100, end)]


async def test_telemetry_is_told_along_the_tree(world: World) -> None:
    rig, _ = await world.vehicle()
    local, control = await world.leaf_client(rig), await world.hub_client()
    await hub(world, "node", "create", "depot")
    await hub(world, "node", "move", "VID-001", "--to", "depot")
    depot = await control.subscribe("up.depot.>")
    await control.flush()
    for number in range(20):
        await local.request("app.battery.soc", str(number).encode())
    last: dict[str, Any] = {}
    while last.get("value") != 19.0:
        subject, last = await next_told(depot)
        assert subject == "up.depot.VID-001%2Fbattery.soc.%"
    shown = json.loads(await hub(world, "get", "VID-001", "--telemetry", "--json"))
    assert [point["value"] for point in shown["points"]] == [19.0]


async def test_kills_of_the_control_plane_at_any_moment_lose_nothing_that_was_answered(
    world: World,
) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)  # noqa: T201 - shown where the test fails
    chance = random.Random(seed)
    rig, _ = await world.vehicle()
    control = await world.hub_client()
    answered: dict[str, float] = {}
    done = asyncio.Event()

    async def write_at_hub() -> None:
        number = 0
        while not done.is_set() or number % 5:
            question = {"device": "VID-001", "node": f"h{number % 5}"}
            points = [{"type": name, "value": number} for name in "ab"]
            body = json.dumps(question | {"points": points}).encode()
            try:
                answer = json.loads((await control.request("hub.set", body, timeout=2)).data)
            except NatsError:
                await asyncio.sleep(0.02)
                continue
            assert "error" not in answer
            answered[f"h{number % 5}"] = number
            number += 1

    async def write_here() -> None:
        number = 0
        async with connect(rig.url) as agent:
            while not done.is_set():
                await ConfigClient(agent).set(f"v{number % 5}", {"x": number})
                answered[f"v{number % 5}"] = number
                number += 1
                await asyncio.sleep(0.002)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(write_at_hub())
        tasks.create_task(write_here())
        for _ in range(4):
            await asyncio.sleep(chance.uniform(0.1, 0.6))
            await world.hub.control.stop(signal.SIGKILL)
            await world.hub.start_control()
        done.set()
    found: dict[str, Any] = {}

    async def all_there() -> bool:
        nonlocal found
        found = await values(world)
        return all(
            found.get(f"{node}.{name}", -1) >= number
            for node, number in answered.items()
            for name in ("ab" if node.startswith("h") else "x")
        )

    await until(all_there)
    await synced(world)
    async with connect(rig.url) as agent:
        points = await ConfigClient(agent).get()
    assert {f"{point['node']}.{point['type']}": point["value"] for point in points} == found
    # They never wrote the same series: nothing that came twice was taken for a conflict.
    assert json.loads(await hub(world, "conflicts", "--json"))["conflicts"] == []


async def test_nobody_but_the_hub_hears_and_up_stores_nothing_of_it(world: World) -> None:
    rig, _ = await world.vehicle()
    local = await world.leaf_client(rig)
    jobs = await world.hub_client("spark")
    control = await world.hub_client()
    heard: list[str] = []

    async def hear(message: Any) -> None:
        heard.append(message.subject)

    for client in (local, jobs):
        await client.subscribe("up.>", cb=hear)
        await client.subscribe("hub.>", cb=hear)
        await client.flush()
    own = await control.subscribe("up.fleet.*.*.*")
    await control.flush()
    await hub(world, "set", "VID-001", "battery.limit=90")
    assert (await next_told(own))[0] == "up.fleet.VID-001%2Fbattery.limit.%"
    # Nor can they write there: what they publish reaches nobody in account HUB.
    for client in (local, jobs):
        await client.publish("up.fleet.VID-001.forged.%", b"{}")
        forged = {"device": "VID-001", "node": "forged", "points": [{"type": "x", "value": 1}]}
        await client.publish("hub.set", json.dumps(forged).encode())
        await client.flush()
    await hub(world, "set", "VID-001", "battery.limit=91")
    assert (await next_told(own))[1]["value"] == 91.0
    assert own.pending_msgs == 0
    assert await values(world) == {"battery.limit": 91.0}
    assert [
        subject
        for subject in heard
        if subject != "up.fleet.VID-001.forged.%" and subject != "hub.set"
    ] == []
    stored = await control.jetstream(prefix="upapi").stream_info("UP_00", subjects_filter=">")
    for subject in stored.state.subjects or {}:
        parse_uplink(subject)  # a vehicle's own word; it goes on marking its lanes meanwhile

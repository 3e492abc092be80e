"""What the hub writes for a vehicle: it arrives, whatever is killed, passed over, or in conflict."""

from __future__ import annotations

import json
import signal
import sqlite3
from typing import TYPE_CHECKING

import pytest

from backhaul_agent.client import connect
from backhaul_agent.client.config import ConfigClient
from backhaul_codec import decode
from tests.integration.live_points import synced
from tests.integration.synced_hub import hub, until, values
from tests.support.rig.parts import RigError

if TYPE_CHECKING:
    from .conftest import World

pytestmark = [pytest.mark.nats]


async def test_writes_are_stamped_stored_and_written_into_down(world: World) -> None:
    await world.vehicle()
    first = json.loads(
        await hub(world, "set", "VID-001", "battery.limit=90", "--json", "--who", "anna")
    )
    second = json.loads(
        await hub(
            world,
            "set",
            "VID-001",
            "battery.limit=91",
            "battery.mode=eco",
            "gps.rate:int64=5",
            "--json",
        )
    )
    (point,) = first["points"]
    assert (point["value"], point["origin"]) == (90.0, "hub:anna")
    assert all(each["time"] > point["time"] for each in second["points"])
    control = await world.hub_client()
    jetstream = control.jetstream()

    async def all_there() -> bool:
        info = await jetstream.stream_info("DOWN_00", subjects_filter="in.VID-001.p.>")
        return set(info.state.subjects or {}) == {
            f"in.VID-001.p.{subject}" for subject in ("battery.limit.%", "battery", "gps.rate.%")
        }

    await until(all_there)
    frame = await jetstream.get_last_msg("DOWN_00", "in.VID-001.p.battery")
    assert frame.data is not None
    assert {each.type: each.value for each in decode(frame.data).points} == {
        "limit": 91.0,
        "mode": "eco",
    }
    assert await values(world) == {"battery.limit": 91.0, "battery.mode": "eco", "gps.rate": 5}
    await hub(world, "set", "VID-001", "--delete", "battery.mode")
    assert await values(world) == {"battery.limit": 91.0, "gps.rate": 5}


async def test_what_down_lacks_after_a_crash_is_published_from_hub_db(world: World) -> None:
    """As if it was killed between the commit of a write and DOWN's acknowledgement."""
    await world.vehicle()
    await hub(world, "set", "VID-001", "battery.limit=90")
    await world.hub.control.stop(signal.SIGKILL)
    control = await world.hub_client()
    jetstream = control.jetstream()
    await jetstream.purge_stream("DOWN_00", subject="in.VID-001.p.>")
    with sqlite3.connect(world.hub.directory / "hub.db") as database:
        # Or it was killed there indeed, and the row is there.
        database.execute("INSERT OR REPLACE INTO outbox VALUES ('VID-001', 'p.battery.limit.%', 7)")
    database.close()
    await world.hub.start_control()

    async def published() -> bool:
        info = await jetstream.stream_info("DOWN_00", subjects_filter="in.VID-001.p.>")
        return bool(info.state.subjects)

    await until(published)
    report = await world.until(lambda report: report["devices"][0]["heads"]["waiting"] == 0)
    assert report["devices"][0]["heads"]["count"] == 1


async def test_what_lost_in_a_conflict_is_kept_and_can_be_put_back(world: World) -> None:
    rig, relay = await world.vehicle()
    async with connect(rig.url) as agent:
        vehicle = ConfigClient(agent)
        await world.until(
            lambda report: (report["devices"][0]["clock"] or {}).get("quality") == "synced"
        )
        await vehicle.set("battery", {"limit": 70.0})

        async def arrived() -> bool:
            return await values(world) == {"battery.limit": 70.0}

        await until(arrived)
        await synced(world)
        await relay.cut()
        await world.until(lambda report: not report["devices"][0]["link"]["up"])
        await vehicle.set("battery", {"limit": 80.0, "floor": 10.0})
        await hub(world, "set", "VID-001", "battery.limit=90", "--who", "anna")
        await relay.heal()
        await world.until(lambda report: report["devices"][0]["heads"]["conflicts"] == 1)
        (conflict,) = json.loads(await hub(world, "conflicts", "VID-001", "--json"))["conflicts"]
        assert (conflict["winner"]["value"], conflict["winner"]["origin"]) == (90.0, "hub:anna")
        assert (conflict["loser"]["value"], conflict["loser"]["origin"]) == (80.0, "")
        assert conflict["winner"]["clock"] == "synced"
        assert conflict["loser"]["clock"] == "synced"
        assert "hub:anna" in await hub(world, "conflicts")
        await synced(world)
        await hub(world, "conflicts", "revert", str(conflict["id"]), "--who", "ben")
        await synced(world)
        points = {point["type"]: point for point in await vehicle.get()}
        assert (points["limit"]["value"], points["limit"]["origin"]) == (80.0, "hub:ben")
        assert points["floor"]["value"] == 10.0
        with pytest.raises(RigError, match="was reverted before"):
            await hub(world, "conflicts", "revert", str(conflict["id"]))
        # Whoever writes now has seen it all.
        await vehicle.set("battery", {"limit": 75.0})
        await synced(world)
        assert json.loads(await hub(world, "conflicts", "--json"))["conflicts"] == []
        everything = json.loads(await hub(world, "conflicts", "--settled", "--json"))
        assert [each["resolved_by"] for each in everything["conflicts"]] == ["hub:ben"]


async def test_a_write_that_the_vehicles_source_passed_over_comes_all_the_same(
    world: World,
) -> None:
    """What a hub that moved does to a leaf that is back at once; the agent sees no link away."""
    rig, _ = await world.vehicle()
    control = await world.hub_client()

    async def write(name: str, value: int) -> None:
        points = [{"type": name, "value": value}]
        question = {"device": "VID-001", "node": "gps", "points": points}
        answer = await control.request("hub.set", json.dumps(question).encode())
        assert "error" not in json.loads(answer.data)

    await write("rate", 0)
    await synced(world)
    for number in range(1, 20):  # the source stands, and counts this far
        await write("rate", number)
    await synced(world)
    jetstream = control.jetstream()
    (info,) = await jetstream.consumers_info("DOWN_00")
    durable = f"DOWN_00.{info.name}"
    config = json.loads((await control.request(f"$JS.API.CONSUMER.INFO.{durable}")).data)["config"]
    await control.request(f"$JS.API.CONSUMER.DELETE.{durable}")
    create = {"stream_name": "DOWN_00", "action": "", "config": config}
    # It counts from 1: what it delivers before the next reset the source takes for old, and drops.
    await control.request(f"$JS.API.CONSUMER.CREATE.{durable}", json.dumps(create).encode())
    await write("mode", 7)
    for _ in range(3):  # each takes the place of the one before
        watermark = b'{"epoch": 1, "seq": 0}'  # of no epoch that the vehicle knows
        told = await jetstream.publish("in.VID-001.s.watermark.bulk", watermark)

        async def delivered(seq: int = told.seq) -> bool:
            found = await jetstream.consumer_info("DOWN_00", str(info.name))
            return found.delivered is not None and found.delivered.stream_seq >= seq

        await until(delivered)
    await synced(world)
    async with connect(rig.url) as agent:
        points = await ConfigClient(agent).get("gps")
    assert {point["type"]: point["value"] for point in points} == {"rate": 19, "mode": 7}


async def test_a_node_made_at_the_hub_is_in_the_vehicles_tree_with_its_points(
    world: World,
) -> None:
    rig, _ = await world.vehicle()
    await hub(world, "node", "create", "VID-001/aux", "limit=80", "--type", "battery")
    await hub(world, "node", "create", "VID-001/cell", "--under", "VID-001/aux")
    await synced(world)
    async with connect(rig.url) as agent:
        vehicle = ConfigClient(agent)
        tree = await vehicle.tree()
        assert {"parent": "aux", "node": "cell", "type": "node"} in tree["edges"]
        assert {"parent": "VID-001", "node": "aux", "type": "battery"} in tree["edges"]
        assert ("aux", "limit", 80.0) in [
            (point["node"], point["type"], point["value"]) for point in await vehicle.get()
        ]
        await vehicle.change_tree("move", node="cell", to="VID-001")

    async def moved() -> bool:
        return (await hub(world, "tree")).splitlines() == [
            "fleet",
            "└─ VID-001",
            "   ├─ VID-001/aux (battery)",
            "   └─ VID-001/cell (node)",
        ]

    await until(moved)


async def test_what_cannot_be_is_refused_in_words(world: World) -> None:
    await world.vehicle()
    for arguments, why in (
        (("get", "VID-009"), "there is no device VID-009"),
        (("set", "VID-009", "a.b=1"), "there is no device VID-009"),
        (("set", "VID-001", "a.b:int64=x"), "does not fit dtype int64"),
        (("set", "VID-001", "--delete", "a.b"), "there is no a.b to delete"),
        (("node", "mirror", "VID-001", "--under", "VID-001"), "edges stay inside"),
        (("conflicts", "revert", "7"), "there is no conflict 7"),
        (("conflicts", "VID-009"), "there is no device VID-009"),
    ):
        with pytest.raises(RigError) as refused:
            await hub(world, *arguments)
        assert why in str(refused.value)
    control = await world.hub_client()
    for question in (b"", b"{", b"[]", b'{"device": "VID-001", "what": 1}'):
        answer = json.loads((await control.request("hub.set", question)).data)
        assert answer["error"]["message"]
    await hub(world, "node", "create", "depot")
    with pytest.raises(RigError, match="is a group"):
        await hub(world, "add-device", "depot")
    with pytest.raises(RigError, match="is the root"):
        await hub(world, "add-device", "fleet")

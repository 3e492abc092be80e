"""From a program on the vehicle to the hub's proof, over links and processes that fail."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
from dataclasses import replace

import pytest
from nats.errors import NoRespondersError

from backhaul_agent.client import connect
from backhaul_codec.protocol.credentials import parse_credentials
from backhaul_hub.nats.nkey import new_key
from tests.integration.readings import (
    GARBAGE,
    arrive,
    at_the_hub,
    confirmed,
    frames_at_the_hub,
    keep,
    told,
)
from tests.support.rig.parts import DeviceRig, RigError, program, run_to_end, wait_for_log

from .conftest import DEADLINE_S, World, lane, vouched

pytestmark = [pytest.mark.nats]


async def test_what_is_kept_during_a_cut_arrives_once_the_link_is_back(world: World) -> None:
    rig, relay = await world.vehicle()
    async with connect(rig.url) as agent:
        await keep(agent, 1, 500)
        await world.until(lambda report: lane(report).get("watermark", 0) >= 2)
        await relay.cut()
        await world.until(lambda report: not report["devices"][0]["link"]["up"])
        await keep(agent, 501, 5000)
        await relay.heal()
        report = await world.until(lambda report: lane(report).get("watermark", 0) >= 22)
    assert lane(report)["gaps"] == []
    await world.until(lambda report: report["devices"][0]["link"]["up"])
    assert await at_the_hub(world) == list(range(1, 5501))


async def test_the_watermark_comes_back_to_the_vehicle(world: World) -> None:
    rig, _ = await world.vehicle()
    async with connect(rig.url) as agent:
        await keep(agent, 1, 1000)
    await confirmed(world, rig, 4)


async def test_garbage_is_set_aside_with_the_reason_and_stops_nothing(world: World) -> None:
    rig = await world.sourced_vehicle()
    local = await world.leaf_client(rig)
    async with connect(rig.url) as agent:
        await keep(agent, 1, 250)
        # A local program that writes into the agent's own subjects: to the hub it is garbage.
        await local.request("f.battery", b"this is no frame")
        await keep(agent, 251, 250)
        report = await world.until(lambda report: lane(report).get("watermark", 0) == 2)
    assert report["streams"][0]["quarantined"] == 1
    hub = await world.hub_client()
    set_aside = await hub.jetstream().get_last_msg("QUARANTINE", "quarantine.UP_00.>")
    assert set_aside.data == b"this is no frame"
    assert set_aside.headers is not None
    assert set_aside.headers["Backhaul-Subject"] == "up.VID-001.f.battery"
    assert set_aside.headers["Backhaul-Reason"]


async def test_garbage_of_the_largest_size_stops_nothing(world: World) -> None:
    rig = await world.sourced_vehicle()
    local = await world.leaf_client(rig)
    await local.publish("f.battery", bytes(local.max_payload))
    await local.flush()
    async with connect(rig.url) as agent:
        await keep(agent, 1, 250)
        report = await world.until(lambda report: lane(report).get("watermark", 0) == 1)
    assert report["streams"][0]["quarantined"] == 1
    hub = await world.hub_client()
    set_aside = await hub.jetstream().get_last_msg("QUARANTINE", "quarantine.UP_00.>")
    assert set_aside.headers is not None
    assert set_aside.headers["Backhaul-Size"] == str(local.max_payload)


async def test_two_shards_are_read_side_by_side(world: World) -> None:
    await world.hub.stop()
    path = world.hub.directory / "hub.toml"
    path.write_text(path.read_text().replace("shards = 1", "shards = 2"))
    await world.hub.start()
    async with asyncio.TaskGroup() as tasks:
        for device in ("VID-001", "VID-002"):  # they fall into different shards
            rig, _ = await world.vehicle(device)
            tasks.create_task(keep_with(rig, 2500))
    await world.until(
        lambda report: [lane(report, f"VID-00{n}").get("watermark") for n in (1, 2)] == [10, 10]
    )


async def keep_with(rig: DeviceRig, count: int) -> None:
    async with connect(rig.url) as agent:
        await keep(agent, 1, count)


async def test_the_jobs_user_reads_and_does_nothing_else(world: World) -> None:
    """Reply subjects are never permission-checked: in the streams' account one could delete."""
    rig, _ = await world.vehicle()
    async with connect(rig.url) as agent:
        await keep(agent, 1, 250)
    await confirmed(world, rig, 1)
    jobs = await world.hub_client("spark")
    info = json.loads((await jobs.request("jobsapi.STREAM.INFO.UP_00", b"")).data)
    assert info["state"]["messages"] >= 1
    ask = b'{"last_by_subj": "up.VID-001.f.battery"}'
    got = await jobs.request("jobsapi.DIRECT.GET.UP_00", ask)
    assert got.headers is not None
    assert got.headers["Nats-Subject"] == "up.VID-001.f.battery"
    for reply in (
        "$JS.API.STREAM.DELETE.QUARANTINE",
        "$JS.API.STREAM.DELETE.UP_00",
        "in.VID-001.s.watermark.bulk",
    ):
        await jobs.publish("jobsapi.DIRECT.GET.UP_00", ask, reply=reply)
        await jobs.publish(reply, b"{}")
    await jobs.flush()
    with pytest.raises(NoRespondersError):
        await jobs.request("jobsapi.STREAM.PURGE.UP_00", b"")
    control = await world.hub_client()
    assert (await control.jetstream().stream_info("QUARANTINE")).config.name == "QUARANTINE"
    assert await told(control.jetstream(), "in.VID-001.s.watermark.bulk") == 1


async def test_a_store_put_back_while_nobody_looked_is_noticed(world: World) -> None:
    rig, _ = await world.vehicle()
    store, older = world.hub.directory / "jetstream", world.directory / "older"
    async with connect(rig.url) as agent:
        await keep(agent, 1, 500)
        await world.until(lambda report: lane(report).get("watermark", 0) == 2)
        await world.hub.server.stop()
        await run_to_end(["cp", "-a", str(store), str(older)])
        await world.hub.server.start()
        await keep(agent, 501, 500)
        await world.until(lambda report: lane(report).get("watermark", 0) == 4)
        await world.hub.server.stop(signal.SIGKILL)
        await run_to_end(["rm", "-r", str(store)])
        await run_to_end(["mv", str(older), str(store)])
        await world.hub.server.start()
        await wait_for_log(world.hub.control, '"reasons": ["rolled_back"]')


async def test_a_control_plane_that_crashes_reads_on_where_it_was(world: World) -> None:
    rig = await world.sourced_vehicle()
    local = await world.leaf_client(rig)
    await wait_for_log(rig.agent, '"stream": "OUT_bulk"')
    async with connect(rig.url) as agent:
        await local.request("f.battery", GARBAGE)
        await keep(agent, 1, 2500)
        await world.until(lambda report: lane(report).get("watermark", 0) == 10)
        await world.hub.control.stop(signal.SIGKILL)
        await keep(agent, 2501, 2500)
        await world.hub.start_control()
        report = await world.until(lambda report: lane(report).get("watermark", 0) == 20)
    assert report["streams"][0]["quarantined"] == 1
    # It has counted each once. What it asked for while it was on its way stands in UP twice.
    async with asyncio.timeout(DEADLINE_S):
        while True:
            counted, held = lane(await world.report()), await frames_at_the_hub(world)
            if counted["messages"] + counted["repeats"] == len(held):
                break
    assert counted["messages"] == len(dict(held)) == 20


async def test_the_hub_server_crashes_and_comes_back(world: World) -> None:
    rig, _ = await world.vehicle()
    async with connect(rig.url) as agent:
        await keep(agent, 1, 1000)
        await world.until(lambda report: lane(report).get("watermark", 0) == 4)
        await world.hub.server.stop(signal.SIGKILL)
        await keep(agent, 1001, 1000)
        await world.hub.server.start()
        await world.until(lambda report: lane(report).get("watermark", 0) == 8)
    assert await at_the_hub(world) == list(range(1, 2001))


async def test_leaf_and_agent_crash_while_offline(world: World) -> None:
    rig, relay = await world.vehicle()
    await relay.cut()
    async with connect(rig.url) as agent:
        await keep(agent, 1, 1000)
        await rig.agent.stop(signal.SIGKILL)
        await rig.leaf.stop(signal.SIGKILL)
    await rig.start()
    async with connect(rig.url) as agent:
        await keep(agent, 1001, 1000)
    await relay.heal()
    # Nobody could vouch for the old epoch at the start, so the second half has one of its own.
    await arrive(world, 2000)
    await world.until(lambda report: lane(report).get("watermark") == 4)
    assert await at_the_hub(world) == list(range(1, 2001))


async def test_a_wiped_leaf_store_is_filled_again_from_the_ledger(world: World) -> None:
    rig, relay = await world.vehicle()
    async with connect(rig.url) as agent:
        await keep(agent, 1, 1000)
        await world.until(lambda report: lane(report).get("watermark", 0) == 4)
        await relay.cut()
        await keep(agent, 1001, 1000)
    await rig.stop()
    await run_to_end(["rm", "-r", str(rig.agent_toml.parent / "backhaul-leaf")])
    await rig.start()
    await relay.heal()
    await world.until(lambda report: lane(report).get("watermark", 0) == 8)
    assert await at_the_hub(world) == list(range(1, 2001))


async def test_a_leaf_store_that_a_power_cut_rolled_back(world: World) -> None:
    """The leaf reuses sequences then, and the hub's source takes what comes under them for old."""
    rig, _ = await world.vehicle()
    store = rig.agent_toml.parent / "backhaul-leaf"
    older = rig.agent_toml.parent / "older"
    async with connect(rig.url) as agent:
        await keep(agent, 1, 1000)
        await world.until(lambda report: lane(report).get("watermark", 0) == 4)
    await rig.stop()
    await run_to_end(["cp", "-a", str(store), str(older)])
    await rig.start()
    await vouched(rig)
    async with connect(rig.url) as agent:
        await keep(agent, 1001, 2000)
        await world.until(lambda report: lane(report).get("watermark", 0) == 12)
        await confirmed(world, rig, 12)
    await rig.agent.stop(signal.SIGKILL)
    await rig.leaf.stop(signal.SIGKILL)
    await run_to_end(["rm", "-r", str(store)])
    await run_to_end(["mv", str(older), str(store)])
    await rig.start()
    await vouched(rig)
    async with connect(rig.url) as agent:
        await keep(agent, 3001, 3000)
    await world.until(lambda report: lane(report).get("watermark", 0) == 24)
    assert await at_the_hub(world) == list(range(1, 6001))


async def test_a_rotten_ledger_row_is_a_named_gap_and_stops_nothing(world: World) -> None:
    rig, relay = await world.vehicle()
    await relay.cut()
    async with connect(rig.url) as agent:
        await keep(agent, 1, 1000)
    await rig.stop()
    # The leaf forgets, so the agent has to read its ledger again, where a bit has flipped.
    state = rig.agent_toml.parent
    await run_to_end(["rm", "-r", str(state / "backhaul-leaf")])
    with sqlite3.connect(state / "backhaul-agent" / "ledger.db") as ledger:
        (body,) = ledger.execute(
            "SELECT body FROM messages JOIN lanes ON lane = lanes.id"
            " WHERE name = 'bulk' AND seq = 3"
        ).fetchone()
        rotten = body[:-1] + bytes([body[-1] ^ 1])
        ledger.execute("UPDATE messages SET body = ? WHERE body = ?", (rotten, body))
    ledger.close()
    await rig.start()
    await relay.heal()
    report = await world.until(lambda report: lane(report).get("watermark", 0) == 4)
    assert lane(report)["explained"] == [[3, 3]]
    assert lane(report)["gaps"] == []
    assert await at_the_hub(world) == [*range(1, 501), *range(751, 1001)]


async def test_two_vehicles_are_told_apart(world: World) -> None:
    for device, count in (("VID-001", 2), ("VID-002", 3)):
        rig, _ = await world.vehicle(device)
        async with connect(rig.url) as agent:
            await keep(agent, 1, count * 250)
    report = await world.until(
        lambda report: (
            (
                lane(report, "VID-001").get("watermark"),
                lane(report, "VID-002").get("watermark"),
            )
            == (2, 3)
        )
    )
    assert [each["device"] for each in report["devices"]] == ["VID-001", "VID-002"]


async def test_a_live_point_travels_on_its_own_lane(world: World) -> None:
    rig, _ = await world.vehicle()
    local = await world.leaf_client(rig)
    answer = await local.request("app.cargo.door", b'{"value": "open", "lane": "live"}')
    assert json.loads(answer.data) == {"kept": 1}
    status = json.loads((await local.request("agent.status", b"")).data)
    last = status["lanes"]["live"]["last_seq"]
    report = await world.until(lambda report: lane(report, name="live").get("watermark", 0) >= last)
    assert lane(report, name="live")["gaps"] == []
    hub = await world.hub_client()
    ask = b'{"last_by_subj": "up.VID-001.p.cargo.door.%"}'
    assert b"open" in (await hub.request("upapi.DIRECT.GET.UP_00", ask)).data


async def test_a_stranger_cannot_connect_as_a_vehicle(world: World) -> None:
    rig, _ = await world.vehicle()
    creds = rig.agent_toml.with_name("device.creds")
    await rig.stop()
    await world.until(lambda report: not report["devices"][0]["link"]["up"])
    mine, stranger = parse_credentials(creds.read_text()), new_key("user")
    creds.write_text(replace(mine, seed=stranger.seed).text())
    await rig.start()
    await wait_for_log(rig.leaf, "Authorization Violation")
    assert not (await world.report())["devices"][0]["link"]["up"]


async def test_the_command_line_says_what_is_wrong(world: World) -> None:
    directory = str(world.hub.directory)
    hub = program("backhaul-hub")
    with pytest.raises(RigError, match="is no device id"):
        await run_to_end([hub, "add-device", "VID 1", "--dir", directory])
    await run_to_end([hub, "add-device", "VID-001", "--dir", directory])
    with pytest.raises(RigError, match="exists already"):
        await run_to_end([hub, "add-device", "VID-001", "--dir", directory])
    await world.hub.control.stop()
    with pytest.raises(RigError, match="start it with: backhaul-hub up"):
        await run_to_end([hub, "devices", "--dir", directory])
    await world.hub.server.stop()
    with pytest.raises(RigError, match=r"nats-server -c hub\.conf"):
        await run_to_end([hub, "devices", "--dir", directory])

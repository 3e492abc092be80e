"""The hub loses what it held, and has it again: UP purged, deleted, put back from a copy.

Real hub, real vehicle, real link. Not covered: a power cut of the hub's machine; an older copy of its
store put back is what one comes to.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from typing import TYPE_CHECKING

import pytest
from nats.errors import NoRespondersError

from backhaul_agent.client import connect
from backhaul_codec.subjects import stored_dictionary_subject
from backhaul_codec.wire.dictionaries import digest_of, read_dictionary
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.store import Registry
from backhaul_hub.lane_records.lane_rows import read_position
from tests.integration.hub_api import api, kept, whole_again
from tests.integration.readings import keep, told
from tests.support.rig.parts import run_to_end, wait_for_log

from .conftest import DEADLINE_S, World, lane

if TYPE_CHECKING:
    from tests.support.rig.parts import DeviceRig

pytestmark = [pytest.mark.nats]


async def test_a_purged_up_is_asked_for_again(world: World) -> None:
    rig, _ = await world.vehicle()
    await kept(world, rig)
    await api(world, "STREAM.PURGE.UP_00", {"keep": 5})
    await wait_for_log(world.hub.control, '"reasons": ["purged"]')
    await whole_again(world)


async def test_single_messages_that_are_deleted_are_asked_for_again(world: World) -> None:
    rig, _ = await world.vehicle()
    await kept(world, rig)
    for stream_seq in (3, 4, 9):
        await api(world, "STREAM.MSG.DELETE.UP_00", {"seq": stream_seq})
    await wait_for_log(world.hub.control, '"reasons": ["deleted"]')
    await whole_again(world)


async def test_a_deleted_up_is_made_anew_and_filled_again(world: World) -> None:
    rig, _ = await world.vehicle()
    await kept(world, rig)
    await api(world, "STREAM.DELETE.UP_00")
    await wait_for_log(world.hub.control, '"event": "stream_was_deleted"')
    await wait_for_log(world.hub.control, '"reasons": ["recreated"]')
    await whole_again(world)


async def test_a_deleted_down_is_made_anew_and_written_again(world: World) -> None:
    rig, _ = await world.vehicle()
    async with connect(rig.url) as agent:
        await keep(agent, 1, 250)
        await world.until(lambda report: lane(report).get("watermark", 0) == 1)
        logged = world.hub.control.logged_bytes
        for name in ("DOWN_00", "QUARANTINE", "TWIN_STATE"):
            await api(world, f"STREAM.DELETE.{name}")
        for name in ("DOWN_00", "QUARANTINE", "TWIN_STATE"):
            await wait_for_log(world.hub.control, f"create {name}", logged)
        await keep(agent, 251, 250)
        await world.until(lambda report: lane(report).get("watermark", 0) == 2)
    hub = (await world.hub_client()).jetstream()
    assert await told(hub, "in.VID-001.s.watermark.bulk") >= 1
    async with asyncio.timeout(DEADLINE_S):
        filters: list[str | None] = []
        while filters != ["in.VID-001.>"]:
            filters = [each.config.filter_subject for each in await hub.consumers_info("DOWN_00")]


async def test_a_deleted_dict_is_made_anew_and_filled_from_hub_db(world: World) -> None:
    rig, _ = await world.vehicle()
    await kept(world, rig)
    async with await Registry.open(world.hub.directory / "hub.db") as registry:
        row = ("VID-001", digest_of(b"names").hex(), b"names", 1, 1)
        await registry.write([RowChange("INSERT INTO dictionary VALUES (?, ?, ?, ?, ?)", [row])])
    logged = world.hub.control.logged_bytes
    await api(world, "STREAM.DELETE.DICT")
    await wait_for_log(world.hub.control, '"event": "dictionaries_published_again"', logged)
    hub = (await world.hub_client()).jetstream()
    message = await hub.get_last_msg(
        "DICT", stored_dictionary_subject("VID-001", digest_of(b"names"))
    )
    assert read_dictionary(message.data or b"") == b"names"
    logged = world.hub.control.logged_bytes
    await api(world, "STREAM.PURGE.DICT")
    await wait_for_log(world.hub.control, '"event": "dictionaries_published_again"', logged)


async def write(world: World, value: float) -> None:
    """Write a series of configuration at the hub, once its control plane is there (again)."""
    points = [{"type": "number", "value": value}]
    client = await world.hub_client()
    body = json.dumps({"device": "VID-001", "node": "cfg", "points": points}).encode()
    async with asyncio.timeout(DEADLINE_S):
        while True:
            with contextlib.suppress(NoRespondersError):
                answer = json.loads((await client.request("hub.set", body)).data)
                assert "error" not in answer, answer
                return
            await asyncio.sleep(0.05)


async def known_to_hub_db(world: World) -> None:
    """Wait until hub.db knows how far DOWN goes."""
    client = await world.hub_client()
    last = (await client.jetstream().stream_info("DOWN_00")).state.last_seq
    async with (
        asyncio.timeout(DEADLINE_S),
        await Registry.open_existing(world.hub.directory / "hub.db") as registry,
    ):
        while (await read_position(registry, "DOWN_00")).seq < last:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def heard(rig: DeviceRig, value: float) -> None:
    """Wait until the vehicle has it."""
    async with asyncio.timeout(120), rig.connection() as leaf:
        while True:
            points = json.loads((await leaf.request("agent.get", b"{}", timeout=30)).data)["points"]
            if value in [each["value"] for each in points if each["node"] == "cfg"]:
                return
            await asyncio.sleep(0.1)


async def test_a_vehicle_hears_a_hub_whose_store_was_put_back(world: World) -> None:
    """DOWN goes back with it, and gives out again what the vehicle's IN has passed."""
    rig, _ = await world.vehicle()
    store, older = world.hub.directory / "jetstream", world.directory / "older"
    await write(world, 0.0)
    await heard(rig, 0.0)
    await world.hub.server.stop()
    await run_to_end(["cp", "-a", str(store), str(older)])
    await world.hub.server.start()
    for number in range(1, 40):
        await write(world, float(number))
    await heard(rig, 39.0)
    await known_to_hub_db(world)
    await world.hub.control.stop(signal.SIGKILL)
    await world.hub.server.stop(signal.SIGKILL)
    await run_to_end(["rm", "-r", str(store)])
    await run_to_end(["mv", str(older), str(store)])
    await world.hub.server.start()
    await world.hub.server.wait_listening(world.hub.client_port)
    await world.hub.start_control()
    # The first may be told where both ends compare at the link's coming up.
    for value in (40.0, 41.0):
        await world.until(lambda report: report["devices"][0]["link"]["up"])
        await write(world, value)
        await heard(rig, value)
    await wait_for_log(world.hub.control, '"event": "down_went_back"')


@pytest.mark.parametrize("control_runs", [True, False], ids=["running", "stopped"])
async def test_a_store_put_back_from_an_older_copy_is_filled_again(
    world: World, control_runs: bool
) -> None:
    rig, _ = await world.vehicle()
    store, older = world.hub.directory / "jetstream", world.directory / "older"
    async with connect(rig.url) as agent:
        await keep(agent, 1, 250 * 5)
        await world.until(lambda report: lane(report).get("watermark", 0) == 5)
    await world.hub.server.stop()
    await run_to_end(["cp", "-a", str(store), str(older)])
    await world.hub.server.start()
    await kept(world, rig, first=6)
    if not control_runs:
        await world.hub.control.stop(signal.SIGKILL)
    await world.hub.server.stop(signal.SIGKILL)
    await run_to_end(["rm", "-r", str(store)])
    await run_to_end(["mv", str(older), str(store)])
    await world.hub.server.start()
    if not control_runs:
        await world.hub.server.wait_listening(world.hub.client_port)
        await world.hub.start_control()
    # The source may bring some of it by itself, as it was: then nothing is to be noticed.
    await whole_again(world)

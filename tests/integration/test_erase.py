"""A vehicle is erased: a planted text is in no file of the hub, its tables and its backups, and the other vehicle is whole.

Real hub, real vehicles, tables that the ingest's own code writes. Not covered: the disk below the files.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.client import connect
from backhaul_agent.client.config import ConfigClient
from backhaul_codec import Point
from backhaul_hub.nats.stream_reader import StoredReader
from backhaul_spark.nats.direct_get import close_connections
from tests.integration.synced_hub import hub, until, values
from tests.support.past_world import PastWorld
from tests.support.rig.parts import RigError, program, run_to_end

from .conftest import World, lane

if TYPE_CHECKING:
    from tests.support.rig.parts import DeviceRig

pytestmark = [pytest.mark.nats]

GONE, STAYS = "VID-001", "VID-002"
PLANTED = "planted-text-of-one-vehicle"


def holding(place: Path, text: str) -> list[str]:
    """Return the files below a directory with a text in them, as it is written or as JSON escapes it."""
    return sorted(
        str(path.relative_to(place))
        for path in place.rglob("*")
        if path.is_file() and text.encode() in path.read_bytes()
    )


async def speak(world: World, rig: DeviceRig, device: str, text: str) -> None:
    """Have a vehicle and the hub say a text to each other, in each way that there is, and wait until it is here."""
    now_ns = time.time_ns()
    async with connect(rig.url) as agent:
        points = [Point("log", "line", now_ns + each, f"{text} {each}") for each in range(50)]
        await agent.publish_batch("log", points)
        await agent.publish("log", "state", f"{text} state")
        await agent.event("breakdown", data={"what": f"{text} event"})
        await ConfigClient(agent).set("log", {"note": f"{text} note"})
        await hub(world, "set", device, f"log.told={text} told")
        await hub(world, "command", device, "greet", "--params", json.dumps({"say": text}))

        async def arrived() -> bool:
            here = await values(world, device)
            there = {each["type"]: each["value"] for each in await ConfigClient(agent).get("log")}
            return here.get("log.note") == f"{text} note" and there.get("told") == f"{text} told"

        await until(arrived)
    await world.until(lambda report: lane(report, device).get("watermark", 0) >= 1)


async def test_an_erased_vehicle_is_nowhere_and_the_other_is_whole(
    world: World, tmp_path: Path
) -> None:
    gone, _ = await world.vehicle(GONE)
    stays, _ = await world.vehicle(STAYS)
    await speak(world, gone, GONE, PLANTED)
    await speak(world, stays, STAYS, "text of the other")
    backups, tables = tmp_path / "backups", world.directory / "tables"
    past = PastWorld(
        world.directory,
        {
            "servers": world.hub.addresses()[0],
            "credentials": str(world.hub.directory / "creds" / "spark.creds"),
        },
        None,
    )
    await asyncio.to_thread(past.ingest)
    await hub(world, "backup", str(backups), "--keep", "7")
    [before] = backups.iterdir()
    # Where a server stores it compressed, a search finds nothing: here it would.
    assert {"1.blk", "hub.db-wal"} <= {
        Path(name).name for name in holding(world.hub.directory, PLANTED)
    }
    assert {"hub.db"} <= {Path(name).name for name in holding(backups, PLANTED)}
    heads, bodies = await held_of(world, STAYS)

    plan = json.loads(await hub(world, "erase", GONE, "--json"))["plan"]
    assert plan["streams"].keys() >= {
        "UP_00",
        "DOWN_00",
        "KV_TWIN_SHADOW",
        "TWIN_STATE",
        "TWIN_EVENTS",
    }
    assert plan["rows"].keys() >= {"device", "head", "lane", "mark", "command", "shadow"}
    assert plan["backups"] == [str(before)]
    assert lane(await world.report(), GONE), "nothing was erased yet"
    said = await hub(world, "erase", GONE, "--yes")
    assert "It is erased here." in said
    assert f"backhaul-spark maintain --erase {GONE} --table-root ROOT" in said
    assert holding(world.hub.directory, PLANTED) == []
    assert b"up_is_not_as_it_was_read" not in world.hub.control.logged()
    now_heads, now_bodies = await held_of(world, STAYS)
    assert (now_heads, now_bodies[: len(bodies)]) == (heads, bodies)
    hours = json.loads(await hub(world, "completeness", GONE, "--json"))["hours"]
    assert {hour["state"] for hour in hours} == {"erased"}
    for refused in (["enrol", GONE], ["add-device", GONE]):
        with pytest.raises(RigError, match=f"{GONE} was erased"):
            await hub(world, *refused)

    await asyncio.to_thread(close_connections)
    assert holding(tables, PLANTED)
    await run_to_end(
        [program("backhaul-spark"), "maintain", "--erase", GONE, "--table-root", str(tables)]
    )
    await hub(world, "erase", GONE, "--tables-done")
    assert holding(tables, PLANTED) == []
    keep = tmp_path / "kept"
    await run_to_end(["cp", "-r", str(before), str(keep)])
    await hub(world, "backup", str(backups), "--keep", "7")
    assert not before.exists()
    assert holding(backups, PLANTED) == []
    # The other goes on as if nothing had been.
    await speak(world, stays, STAYS, "text of the other, later")
    answer = json.loads(await hub(world, "erase", GONE, "--json"))
    assert answer["plan"]["streams"] == {}
    assert json.loads(await hub(world, "completeness", GONE, "--json"))["hours"] == hours

    # An older backup brings it back, and it goes again as the control plane starts.
    await world.hub.control.stop()
    await hub(world, "restore", str(keep), "--replace")
    assert holding(world.hub.directory, PLANTED)
    await world.hub.start_control()
    await world.until(lambda report: [each["device"] for each in report["devices"]] == [STAYS])
    assert holding(world.hub.directory, PLANTED) == []


async def held_of(world: World, device: str) -> tuple[dict[str, Any], list[bytes]]:
    """Return the heads of a device at the hub, and its messages in UP; nothing of its lanes is missing."""
    report = await world.report()
    for name in ("live", "bulk"):
        found = lane(report, device, name)
        assert (found["gaps"], found["lost"]) == ([], 0), name
    reader = StoredReader(await world.hub_client(), "UP_00", timeout_s=60)
    stored = await reader.read(1, 10_000, subject=f"up.{device}.>")
    return await values(world, device), [message.body for message in stored]

"""The hub's store is destroyed and put back from a backup, and the fleet goes on.

Real hub, real vehicle, real link. Not covered: a power cut while the backup is written.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.client import connect
from backhaul_hub.nats.nkey import new_key
from tests.integration.hub_api import FRAMES, kept, whole_again
from tests.integration.readings import keep
from tests.integration.synced_hub import config_goes_both_ways, hub, until, values
from tests.support.rig.parts import RigError, run_to_end

from .conftest import World, lane

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = [pytest.mark.nats]


async def destroy(world: World, *, configuration: bool = False) -> None:
    """End the hub as a crash would, and remove all that it knows."""
    await world.hub.control.stop(signal.SIGKILL)
    await world.hub.server.stop(signal.SIGKILL)
    directory = world.hub.directory
    gone = [directory / "jetstream", *directory.glob("hub.db*")]
    if configuration:
        gone += [*directory.glob("*.conf"), directory / "hub.toml"]
        gone += [directory / name for name in ("accounts", "creds", "devices", "keys")]
    await run_to_end(["rm", "-r", *map(str, gone)])


async def down_state(world: World) -> dict[str, Any]:
    client = await world.hub_client()
    answer = await client.request("$JS.API.STREAM.INFO.DOWN_00", b"", timeout=30)
    state: dict[str, Any] = json.loads(answer.data)["state"]
    return state


async def restored(world: World, target: Path, *options: str) -> str:
    await world.hub.server.start()
    await world.hub.server.wait_listening(world.hub.client_port)
    said = await hub(world, "restore", str(target), *options)
    await world.hub.start_control()
    return said


async def test_a_destroyed_hub_is_put_back_and_the_fleet_goes_on(
    world: World, tmp_path: Path
) -> None:
    """Of 20 frames 5 were in the backup, the last of them kept while it was taken."""
    rig, _ = await world.vehicle()
    target, artifact = tmp_path / "backup", tmp_path / "map.bin"
    artifact.write_bytes(bytes(range(256)) * 2000)
    await hub(world, "artifact", "put", str(artifact), "--description", "a map")
    await hub(world, "add-device", "VID-002")
    async with connect(rig.url) as agent:
        await keep(agent, 1, 250 * 5)
        await world.until(lambda report: lane(report).get("watermark", 0) == 5)
        await config_goes_both_ways(world, rig, 1)
        backup = asyncio.create_task(hub(world, "backup", str(target)))
        await keep(agent, 250 * 5 + 1, 250 * 5)
        await backup
    await hub(world, "revoke", "VID-002")
    # After the backup DOWN goes further than the backup knows, and so does UP.
    client = await world.hub_client()
    for _ in range(2000):
        await client.publish("in.VID-999.p.gps.rate", b"for another")
    await client.flush()
    await config_goes_both_ways(world, rig, 2)
    await kept(world, rig, first=11)
    before = await down_state(world)
    tokens = sqlite3.connect(world.hub.directory / "hub.db").execute("SELECT * FROM device")
    enrolled = tokens.fetchall()

    await destroy(world)
    logged = world.hub.control.logged_bytes
    said = await restored(world, target)
    assert "All of it was checked" in said
    # The hub.db that knew it is gone; the servers' accounts are there still.
    assert "1 keys were revoked since the backup, and stay so.\nShut out by that: VID-002." in said
    await whole_again(world)
    assert (await down_state(world))["first_seq"] > before["last_seq"]
    # What was in the backup was there at once: the hub read on, and found nothing gone.
    assert b"up_is_not_as_it_was_read" not in world.hub.control.logged(logged)

    # Written after the backup at the hub, and merged at the vehicle: back from there.
    async def back() -> bool:
        return (await values(world)).get("gps.there") == 2

    await until(back)
    await config_goes_both_ways(world, rig, 3)
    async with connect(rig.url) as agent:
        await keep(agent, 250 * FRAMES + 1, 250)
    await world.until(lambda report: lane(report).get("watermark") == FRAMES + 1)
    connection = sqlite3.connect(world.hub.directory / "hub.db")
    assert connection.execute("SELECT * FROM device").fetchall() == enrolled
    listed = json.loads(await hub(world, "artifact", "ls", "--json"))["artifacts"]
    assert [(each["name"], each["bytes"]) for each in listed] == [("map.bin", 512_000)]
    await hub(world, "artifact", "get", "map.bin", str(tmp_path / "again"))
    assert (tmp_path / "again").read_bytes() == artifact.read_bytes()


async def test_a_hub_of_which_nothing_is_left_comes_back_with_its_keys(
    world: World, tmp_path: Path
) -> None:
    rig, _ = await world.vehicle()
    await kept(world, rig)
    target = tmp_path / "backup"
    await hub(world, "backup", str(target), "--without-up")
    await destroy(world, configuration=True)
    with pytest.raises(RigError, match="configuration of this hub is back"):
        await hub(world, "restore", str(target))
    await world.hub.server.start()
    await world.hub.server.wait_listening(world.hub.client_port)
    with pytest.raises(RigError, match="has not come to its end"):
        await hub(world, "up")
    said = await hub(world, "restore", str(target))
    assert "UP_00: empty" in said
    await world.hub.start_control()
    # The vehicle still holds all of it: asked for again, it comes.
    await whole_again(world)
    await config_goes_both_ways(world, rig, 4)


async def test_a_hub_that_holds_data_is_replaced_only_if_that_is_said(
    world: World, tmp_path: Path
) -> None:
    rig, _ = await world.vehicle()
    await kept(world, rig)
    target = tmp_path / "backup"
    await hub(world, "backup", str(target))
    with pytest.raises(RigError, match="the control plane runs"):
        await hub(world, "restore", str(target))
    await world.hub.control.stop()
    with pytest.raises(RigError, match="this hub is not empty"):
        await hub(world, "restore", str(target))
    keys = world.hub.directory / "keys"
    before = (keys / "vehicles.nk").read_text()
    (keys / "vehicles.nk").write_text(new_key("account").seed)
    with pytest.raises(RigError, match="has other keys than the hub of the backup"):
        await hub(world, "restore", str(target), "--replace")
    (keys / "vehicles.nk").write_text(before)
    await hub(world, "restore", str(target), "--replace")
    assert (world.hub.directory / "hub.db.before-restore").exists()
    await world.hub.start_control()
    await whole_again(world)

"""hub.db is lost: the control plane refuses, nobody who was revoked comes in, and the rest goes on once rebuilt.

Real hub, real vehicles, real links. Not covered: vehicles that are enrolled while hub.db is away.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.client import connect
from backhaul_codec import peek
from backhaul_codec.kinds import FRAME
from backhaul_codec.subjects import parse_uplink
from backhaul_hub.access.keys import read_keys
from backhaul_hub.access.push import revoked_for_ever
from backhaul_hub.nats.stream_reader import StoredReader
from tests.integration.readings import keep
from tests.integration.synced_hub import hub, until
from tests.support.rig.parts import RigError, wait_for_log

from .conftest import DEADLINE_S, World, lane

if TYPE_CHECKING:
    from tests.support.rig.parts import DeviceRig

pytestmark = [pytest.mark.nats]
FRAMES = 4


async def kept(world: World, rig: DeviceRig, device: str, last: int) -> None:
    """Have frames kept until `last`, `FRAMES` of them, and wait until the hub has proved all."""
    async with connect(rig.url) as agent:
        await keep(agent, 250 * (last - FRAMES) + 1, 250 * FRAMES)
    await world.until(lambda report: lane(report, device).get("watermark", 0) == last)


async def frames(world: World, device: str) -> list[int]:
    """Return the seqs of a device's bulk that UP holds, sorted, each once.

    A source that is set up anew may bring one again: a repeat, which counts nowhere (ADR 1).
    """
    client = await world.hub_client()
    found = await StoredReader(client, "UP_00", timeout_s=DEADLINE_S).read(1, 10_000)
    mine = [each for each in found if each.subject.startswith(f"up.{device}.")]
    return sorted(
        {peek(each.body).seq for each in mine if parse_uplink(each.subject).letter == FRAME.letter}
    )


async def shut_out(world: World, account: Any) -> set[str]:
    """Return who is shut out of an account, by what the server has."""
    system = await world.hub_client("system")
    public = read_keys(world.hub.directory).account(account).public
    found = await system.request(f"$SYS.REQ.ACCOUNT.{public}.CLAIMS.LOOKUP", b"", timeout=30)
    return revoked_for_ever(found.data.decode())


async def lose_registry(world: World) -> None:
    await world.hub.control.stop()
    for path in world.hub.directory.glob("hub.db*"):
        path.unlink()


def device_of(report: dict[str, Any], device: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in report["devices"] if each["device"] == device)
    return found


def is_up(report: dict[str, Any], device: str) -> bool:
    return bool(device_of(report, device)["link"]["up"])


async def test_a_lost_registry_is_refused_and_rebuilt(world: World) -> None:
    """VID-001 has its document at the hub, VID-002 is revoked, the document of VID-003 is lost as well."""
    rigs = {}
    for device in ("VID-001", "VID-002", "VID-003"):
        rigs[device], _ = await world.vehicle(device)
    for device, rig in rigs.items():
        await kept(world, rig, device, FRAMES)
    await hub(world, "user", "add", "ann", "--group", "fleet")
    await hub(world, "user", "add", "bob", "--group", "VID-001", "--may", "write")
    await hub(world, "revoke", "VID-002")
    await hub(world, "user", "rm", "ann")
    vehicles, people = await shut_out(world, "FLEET"), await shut_out(world, "PEOPLE")
    assert [len(vehicles), len(people)] == [1, 1]

    await lose_registry(world)
    shutil.rmtree(world.hub.directory / "devices" / "VID-003")
    for _ in range(2):  # the first one leaves nothing behind that would have the second one start
        with pytest.raises(RigError, match="knows none of the devices") as refused:
            await hub(world, "up")
        said = str(refused.value)
        assert "ended with 4" in said
        assert "VID-001, VID-002, VID-003" in said
        assert "2 keys are revoked, and stay so" in said
        assert "restore --from-streams" in said
        assert not (world.hub.directory / "hub.db").exists()
    assert await shut_out(world, "FLEET") == vehicles
    assert await shut_out(world, "PEOPLE") == people

    table = json.loads(await hub(world, "restore", "--from-streams", "--json"))
    states = {each["device"]: each["state"] for each in table["devices"]}
    assert states == {"VID-001": "rebuilt", "VID-002": "revoked", "VID-003": "key unknown"}
    assert table["people"] == ["bob"]
    assert table["revoked"] == 2
    said = await hub(world, "restore", "--from-streams")
    assert "VID-002  revoked" in said
    assert "Not brought back:" in said
    logged = world.hub.control.logged_bytes
    await world.hub.start_control()
    # Neither a gap nor a double: what UP held was read again.
    for device in ("VID-001", "VID-003"):
        await world.until(
            lambda report, device=device: (  # type: ignore[misc]
                is_up(report, device) and lane(report, device).get("watermark") == FRAMES
            )
        )
        await kept(world, rigs[device], device, 2 * FRAMES)
        assert await frames(world, device) == list(range(1, 2 * FRAMES + 1))
        report = await world.report()
        assert lane(report, device)["gaps"] == []
        assert lane(report, device)["lost"] == 0
    assert await shut_out(world, "FLEET") == vehicles
    assert await shut_out(world, "PEOPLE") == people
    report = await world.report()
    assert not is_up(report, "VID-002")
    assert device_of(report, "VID-002")["revoked_ns"]
    assert await frames(world, "VID-002") == list(range(1, FRAMES + 1))
    assert b'"device": "VID-002", "event": "leaf_connected"' not in world.hub.control.logged(logged)
    listed = json.loads(await hub(world, "user", "ls", "--json"))
    assert [(each["name"], each["group"], each["may"]) for each in listed] == [
        ("bob", "VID-001", "write")
    ]
    # The key that no trace said was taken from its login: it can be revoked.
    await hub(world, "revoke", "VID-003")
    await world.until(lambda report: not is_up(report, "VID-003"))
    assert len(await shut_out(world, "FLEET")) == 2


async def test_a_vehicle_of_an_unknown_key_that_is_revoked_is_shut_out_at_its_next_login(
    world: World,
) -> None:
    rig, relay = await world.vehicle()
    await kept(world, rig, "VID-001", FRAMES)
    await lose_registry(world)
    shutil.rmtree(world.hub.directory / "devices")
    await relay.cut()
    await hub(world, "restore", "--from-streams")
    await world.hub.start_control()
    await hub(world, "revoke", "VID-001")
    assert await shut_out(world, "FLEET") == set()
    await relay.heal()
    await wait_for_log(world.hub.control, '"event": "late_key_revoked"')

    async def is_out() -> bool:
        return len(await shut_out(world, "FLEET")) == 1

    await until(is_out)
    await world.until(lambda report: not is_up(report, "VID-001"))


async def test_accounts_and_registry_are_lost_and_nobody_revoked_comes_in(world: World) -> None:
    """As where the server's accounts/ is emptied by hand: its login lets nobody ask for streams."""
    rig, _ = await world.vehicle()
    late, _ = await world.vehicle("VID-002")
    await kept(world, rig, "VID-001", FRAMES)
    await kept(world, late, "VID-002", FRAMES)
    await hub(world, "revoke", "VID-002")
    revoked = await shut_out(world, "FLEET")
    await lose_registry(world)
    await world.hub.server.stop()
    for path in (world.hub.directory / "accounts").iterdir():
        path.unlink()
    await world.hub.server.start()
    await world.hub.server.wait_listening(world.hub.client_port)
    with pytest.raises(RigError, match=r"VID-001 \(document\)"):
        await hub(world, "up")
    said = json.loads(await hub(world, "restore", "--from-streams", "--json"))
    assert [each["device"] for each in said["devices"]] == ["VID-001"]
    assert "Run this again" in said["unreadable"][0]
    assert await shut_out(world, "FLEET") == revoked
    said = json.loads(await hub(world, "restore", "--from-streams", "--json"))
    assert {each["device"]: each["state"] for each in said["devices"]} == {
        "VID-001": "known", "VID-002": "revoked"
    }  # fmt: skip
    await world.hub.start_control()
    await world.until(lambda report: is_up(report, "VID-001"))
    await kept(world, rig, "VID-001", 2 * FRAMES)
    assert await frames(world, "VID-001") == list(range(1, 2 * FRAMES + 1))
    assert await shut_out(world, "FLEET") == revoked
    assert not is_up(await world.report(), "VID-002")


async def test_a_hub_db_of_before_a_vehicle_was_enrolled_learns_of_it_and_says_so(
    world: World,
) -> None:
    """Put back by hand: what vehicles that it does not know have sent stays, and they go on."""
    rig, _ = await world.vehicle()
    await kept(world, rig, "VID-001", FRAMES)
    await world.hub.control.stop()
    older = world.directory / "older.db"
    shutil.copy(world.hub.directory / "hub.db", older)
    await world.hub.start_control()
    late, _ = await world.vehicle("VID-002")
    await kept(world, late, "VID-002", FRAMES)
    await lose_registry(world)
    shutil.copy(older, world.hub.directory / "hub.db")
    await world.hub.start_control()
    await wait_for_log(world.hub.control, '"event": "device_adopted"')
    await world.until(lambda report: lane(report, "VID-002").get("watermark") == FRAMES)
    await kept(world, late, "VID-002", 2 * FRAMES)
    assert await frames(world, "VID-002") == list(range(1, 2 * FRAMES + 1))


async def test_a_vehicle_that_an_older_hub_db_does_not_know_is_a_condition(world: World) -> None:
    rig, _ = await world.vehicle()
    await kept(world, rig, "VID-001", FRAMES)
    await world.hub.control.stop()
    older = world.directory / "older.db"
    shutil.copy(world.hub.directory / "hub.db", older)
    await world.hub.start_control()
    late, _ = await world.vehicle("VID-002")
    await kept(world, late, "VID-002", FRAMES)
    await late.stop()
    await lose_registry(world)
    shutil.copy(older, world.hub.directory / "hub.db")
    await world.hub.start_control()

    async def conditions() -> dict[str, str]:
        status = json.loads(await hub(world, "status", "--json"))
        return {
            each["device"]: each["hint"]
            for each in status["conditions"]
            if each["code"] == "device-unknown"
        }

    async def is_shown() -> bool:
        return (await conditions()).keys() == {"VID-002"}

    await until(is_shown)
    assert "restore --from-streams" in (await conditions())["VID-002"]
    await world.hub.control.stop()
    await hub(world, "restore", "--from-streams")
    await world.hub.start_control()
    await world.until(lambda report: lane(report, "VID-002").get("watermark") == FRAMES)

    async def is_over() -> bool:
        return not await conditions()

    await until(is_over)

"""Commands over real servers: from an operator to a handler on a vehicle, and back."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.client import connect
from backhaul_hub.shards import api_subject
from tests.integration.conftest import DEADLINE_S, World
from tests.integration.hub_api import api
from tests.support.command_storm import settings, storm
from tests.support.rig.parts import program, run_to_end, wait_for_log
from tests.support.rig.vehicle import vehicle as rig_of_one

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

    from tests.support.rig.parts import DeviceRig

DEVICE = "VID-001"
COMMANDS = Path(__file__).parents[2] / "docs" / "commands.md"
pytestmark = [pytest.mark.nats]


async def vehicle(world: World, settings: str) -> DeviceRig:
    """Start a vehicle whose agent.toml has these tables too."""
    rig, _ = await world.vehicle(DEVICE)
    await restarted(world, rig, settings)
    return rig


async def restarted(world: World, rig: DeviceRig, settings: str) -> None:
    """Start the agent with these settings, and wait until its ledger is older than now."""
    await rig.agent.stop()
    rig.agent_toml.write_text(rig.agent_toml.read_text() + settings)
    await rig.start_agent()
    local = await world.leaf_client(rig)
    for _ in range(2400):
        status = json.loads((await local.request("agent.status", b"", timeout=30)).data)
        clock, since_ns = status["clock"], status["commands"]["since_ns"]
        if since_ns is not None and clock["time_ns"] - clock["error_ns"] > since_ns:
            return
        await asyncio.sleep(0.05)
    pytest.fail("the agent does not learn the time")


async def command(world: World, *arguments: str) -> dict[str, Any]:
    """Send a command by the command line, wait for its end, and return it."""
    directory = ["--dir", str(world.hub.directory)]
    process = await asyncio.create_subprocess_exec(
        *(program("backhaul-hub"), "command", DEVICE, *arguments, *directory, "--wait", "--json"),
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate()
    found: dict[str, Any] = json.loads(said)
    assert (process.returncode == 0) is (found["state"] == "done"), found
    return found


async def recorded(
    hub: Client, question: dict[str, Any], told: Callable[[Any], str], wanted: str
) -> dict[str, Any]:
    """Ask the hub about commands until what it tells holds ``wanted``; return the newest."""
    end_s = asyncio.get_running_loop().time() + DEADLINE_S
    found: list[dict[str, Any]] = []
    while asyncio.get_running_loop().time() < end_s:
        answer = await hub.request("hub.commands", json.dumps(question).encode(), timeout=30)
        found = json.loads(answer.data)["commands"]
        if found and wanted in told(found):
            return found[-1]
        await asyncio.sleep(0.05)
    pytest.fail(f"never came true: {wanted}; the hub says {found}")


async def test_an_executable_and_a_program_carry_out_commands(world: World) -> None:
    echo = json.dumps(["/bin/sh", "-c", 'echo "$BACKHAUL_COMMAND_NAME $(cat)"'])
    fail = json.dumps(["/bin/sh", "-c", "echo no; exit 3"])
    rig = await vehicle(
        world,
        f'[commands]\nhandler_wait_s = 1.0\n[[command]]\nname = "echo"\nrun = {echo}\n'
        f'[[command]]\nname = "fail"\nrun = {fail}\n',
    )
    local = await world.connect(rig.url)

    async def unlock(message: Any) -> None:
        asked = json.loads(message.data)
        assert asked["name"] == "door.unlock"
        await message.respond(json.dumps({"unlocked": asked["params"]["door"]}).encode())

    await local.subscribe("cmd.door.unlock", cb=unlock)
    done = await command(world, "echo", "--params", '{"a": 1}')
    assert done["state"] == "done", done
    assert done["result"] == {"exit": 0, "output": 'echo {"a": 1}\n'}
    assert done["queued_ns"] <= done["sent_ns"]
    assert done["accepted_ns"] <= done["ended_ns"]
    done = await command(world, "door.unlock", "--params", '{"door": 2}')
    assert (done["state"], done["result"]) == ("done", {"unlocked": 2})


async def test_what_went_to_a_control_plane_that_died_is_taken_in_at_the_next_start(
    world: World,
) -> None:
    hub = await world.hub_client()
    jetstream = hub.jetstream()
    os.kill(world.hub.control.pid, signal.SIGSTOP)
    await jetstream.publish("fleet.prod.veh.VID-404.cmd.unlock", b"")
    async with asyncio.timeout(DEADLINE_S):
        while not (await jetstream.consumer_info("TWIN_CMD", "control")).num_ack_pending:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await world.hub.control.stop(signal.SIGKILL)
    await world.hub.start_control()
    await recorded(hub, {}, lambda found: found[-1]["state"], "failed")
    # Delivered as if for the first time: a second delivery would have been half a minute later.
    delivered = (await jetstream.consumer_info("TWIN_CMD", "control")).delivered
    assert delivered is not None
    assert delivered.consumer_seq == 1


async def test_what_cannot_be_done_says_why_and_leaves_nothing_behind(world: World) -> None:
    fail = json.dumps(["/bin/sh", "-c", "echo no; exit 3"])
    rig = await vehicle(
        world, f'[commands]\nhandler_wait_s = 0.5\n[[command]]\nname = "fail"\nrun = {fail}\n'
    )
    hub = await world.hub_client()
    prefix = f"fleet.prod.veh.{DEVICE}"
    told = await hub.subscribe(f"{prefix}.res.f1")
    for device, name, body, error in (
        (DEVICE, "fail", b'{"id": "f1"}', "exit status 3"),
        (DEVICE, "nobody", b'{"id": "f2"}', "no handler"),
        (DEVICE, "fail", b'{"id": "f3", "colour": 1}', "unknown field `colour`"),
        (DEVICE, "fail", b'{"id": "no good"}', "id"),
        (DEVICE, "fail", b'{"deadline_s": 1e9}', "deadline"),
        ("VID-404", "fail", b"", "there is no device VID-404"),
    ):
        await hub.jetstream().publish(f"fleet.prod.veh.{device}.cmd.{name}", body)
        ended = await recorded(
            hub, {"device": device}, lambda found: found[-1].get("error", ""), error
        )
        assert ended["state"] == "failed"
    states = [json.loads(each.data)["state"] for each in await so_far(told)]
    assert set(states) <= {"queued", "sent", "accepted", "failed"}
    assert states[-1] == "failed"
    # The same id is the same command: answered once more, and not carried out.
    await hub.jetstream().publish(f"{prefix}.cmd.fail", b'{"id": "f1"}')
    again = json.loads((await told.next_msg(timeout=DEADLINE_S)).data)
    assert (again["state"], again["runs"]) == ("failed", 1)
    await until_gone(hub, "TWIN_CMD", ">")
    await until_gone(hub, "DOWN_00", "in.*.c.*")
    await until_gone(await world.leaf_client(rig), "IN", "c.*")


async def test_an_outage_fires_nothing_late_and_loses_nothing_in_time(
    world: World, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    run = json.dumps(["/bin/sh", "-c", f"echo $BACKHAUL_COMMAND_ID >> {log}"])
    rig, link = await world.vehicle(DEVICE)
    await restarted(world, rig, f'[[command]]\nname = "unlock"\nrun = {run}\n')
    await command(world, "unlock", "--id", "first")
    await link.cut()
    hub = await world.hub_client()
    subject = f"fleet.prod.veh.{DEVICE}.cmd.unlock"
    for body in (b'{"id": "late", "deadline_s": 1}', b'{"id": "in-time"}'):
        await hub.jetstream().publish(subject, body)
    await recorded(hub, {"id": "late"}, lambda found: found[-1]["state"], "expired")
    await link.heal()
    await recorded(hub, {"id": "in-time"}, lambda found: found[-1]["state"], "done")
    assert log.read_text() == "first\nin-time\n"


async def test_a_command_outlives_what_carries_it(world: World, tmp_path: Path) -> None:
    """DOWN, one message of it, the queue, its reader and the hub's memory are lost in turn."""
    log = tmp_path / "log"
    run = json.dumps(["/bin/sh", "-c", f"echo $BACKHAUL_COMMAND_ID >> {log}"])
    rig, link = await world.vehicle(DEVICE)
    await restarted(world, rig, f'[[command]]\nname = "unlock"\nrun = {run}\n')
    hub = await world.hub_client()

    async def send(id_: str, deadline_s: int, state: str) -> None:
        body = json.dumps({"id": id_, "deadline_s": deadline_s}).encode()
        await hub.jetstream().publish(f"fleet.prod.veh.{DEVICE}.cmd.unlock", body)

        def told(found: list[dict[str, Any]]) -> str:
            # Its state may be past that when somebody looks; what it was is kept.
            newest = found[-1]
            return state if newest.get(f"{state}_ns") or newest["state"] == "expired" else ""

        await recorded(hub, {"id": id_}, told, state)

    await link.cut()
    await send("first", 200, "sent")
    logged = world.hub.control.logged_bytes
    await api(world, "STREAM.DELETE.DOWN_00")
    await wait_for_log(world.hub.control, "create DOWN_00", logged)
    await api(world, "CONSUMER.DELETE.TWIN_CMD.control")
    await send("second", 200, "sent")
    await api(world, "STREAM.DELETE.TWIN_CMD")
    await wait_for_log(world.hub.control, "create TWIN_CMD", logged)
    await send("third", 200, "sent")
    # As where the vehicle's source passes over it.
    await api(world, "STREAM.PURGE.DOWN_00", {"filter": "in.*.c.second"})
    await link.heal()
    for id_ in ("first", "second", "third"):
        await recorded(hub, {"id": id_}, lambda found: found[-1]["state"], "done")
    await link.cut()
    await send("late", 5, "sent")
    await world.hub.control.stop(signal.SIGKILL)
    await world.hub.start_control()
    # Nobody speaks of it any more: hub.db has to.
    await recorded(hub, {"id": "late"}, lambda found: found[-1]["state"], "expired")
    await link.heal()
    await until_gone(hub, "DOWN_00", "in.*.c.*")
    assert sorted(log.read_text().split()) == ["first", "second", "third"]


async def test_the_documentation_sends_a_command_from_any_client(world: World) -> None:
    rig, _ = await world.vehicle(DEVICE)
    await restarted(world, rig, "")
    async with connect(rig.url) as agent:

        async def unlock(command: dict[str, Any]) -> Any:
            if command["params"] is None:
                raise ValueError("which door?")
            return {"unlocked": command["params"]["door"]}

        await agent.on_command("door.unlock", unlock)
        names: dict[str, Any] = {}
        (snippet,) = re.findall(r"```python\n(.*?)```", COMMANDS.read_text(), re.DOTALL)
        exec(compile(snippet, str(COMMANDS), "exec"), names)
        done = await names["send"](world.hub.options(), DEVICE, "door.unlock", {"door": 2})
        assert (done["state"], done["result"]) == ("done", {"unlocked": 2})
        failed = await names["send"](world.hub.options(), DEVICE, "door.unlock", None)
        assert (failed["state"], failed["error"]) == ("failed", "which door?")
    listed = await run_to_end(
        [program("backhaul-hub"), "commands", DEVICE, "--dir", str(world.hub.directory)]
    )
    assert failed["id"] in listed
    assert "which door?" in listed


@pytest.mark.parametrize("seed", [1])
async def test_each_is_started_once_whatever_is_killed(tmp_path: Path, seed: int) -> None:
    log = tmp_path / "started"
    async with rig_of_one(tmp_path, agent_settings=settings(log)) as rig:
        made = await storm(rig, log, commands=60, length_s=12.0, seed=seed, kills_min=4)
    assert made.complaints() == []
    assert made.states()["done"] > 30, made.states()


async def so_far(told: Subscription) -> list[Msg]:
    """Return what has come on a subscription."""
    return [await told.next_msg() for _ in range(told.pending_msgs)]


async def until_gone(client: Client, stream: str, pattern: str) -> None:
    """Wait until a stream holds nothing on these subjects."""
    request = json.dumps({"subjects_filter": pattern}).encode()
    subjects: dict[str, int] = {}
    for _ in range(2400):
        answer = await client.request(api_subject(f"STREAM.INFO.{stream}"), request, timeout=30)
        subjects = json.loads(answer.data)["state"].get("subjects") or {}
        if not subjects:
            return
        await asyncio.sleep(0.05)
    pytest.fail(f"{stream} still holds {subjects}")

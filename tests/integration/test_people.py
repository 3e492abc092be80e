"""People with a real vehicle below their group: the command line, and the page's examples."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.client import connect
from backhaul_hub.people.login import connect_person, read_person

from .examples import DEADLINE_S, Examples, line
from .people_line import Line

if TYPE_CHECKING:
    from nats.aio.subscription import Subscription

    from .conftest import World

pytestmark = [pytest.mark.nats]

DEVICE = "VID-001"


async def told(live: Subscription, kind: str, **which: str) -> dict[str, Any]:
    """Return the next that is told on a subject with `kind` in it, and has these fields."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            message = await live.next_msg(timeout=None)
            found: dict[str, Any] = json.loads(message.data)
            if f".$.{kind}." in message.subject and which.items() <= found.items():
                return found


@pytest.fixture
async def command_line(world: World) -> Line:
    """A vehicle below plant-7, none below depot, and people of both."""
    some = Line(world)
    for group in ("plant-7", "depot"):
        await some.operator("node", "create", group)
    await some.add("anna", "plant-7", "write")
    await some.add("carl", "plant-7", "command")
    await some.add("dora", "depot", "command")
    return some


async def test_people_work_with_what_hangs_below_their_group(
    world: World, command_line: Line
) -> None:
    at = command_line
    rig, _ = await world.vehicle(DEVICE)
    # Their rights are older than the vehicle's place below them.
    assert "anna may write below plant-7 only" in await at.refused("anna", "get", DEVICE)
    await at.operator("node", "move", DEVICE, "--to", "plant-7")
    carl = read_person(at.creds("carl"))
    client = await connect_person(world.hub.addresses()[0], at.creds("carl"), carl)
    try:
        live = await client.subscribe(carl.live)
        await client.flush()
        async with connect(rig.url) as agent:

            async def unlock(command: dict[str, Any]) -> Any:
                return {"unlocked": command["params"]}

            await agent.on_command("door.unlock", unlock)
            await agent.event("armed", reason="test")
            assert (await told(live, "event"))["reason"] == "test"

            (point,) = (await at.json("anna", "set", DEVICE, "gps.rate:int64=5"))["points"]
            assert (point["value"], point["origin"]) == (5, "hub:anna")
            assert (await at.json("carl", "get", DEVICE))["points"] == [point]
            assert "plant-7" in await at.person("anna", "tree")
            (device,) = (await at.json("anna", "devices"))["devices"]
            assert device["device"] == DEVICE
            said: dict[str, Any] = {"events": []}
            while not said["events"]:  # read from a stream that is sourced from UP
                said = await at.json("anna", "events")
            assert [event["kind"] for event in said["events"]] == ["armed"]
            assert list(said["hours"]) == [DEVICE]

            done = await at.commanded("carl", DEVICE, "door.unlock", "--params", "3", "--wait")
            assert (done["state"], done["result"]) == ("done", {"unlocked": 3})
            assert (await told(live, "command"))["who"] == "carl"
            assert [each["id"] for each in await at.json("anna", "commands")] == [done["id"]]

            await at.person("anna", "shadow", "set", DEVICE, "gps.mode=eco")
            document = await told(live, "shadow", part="desired")
            assert document["body"] == '{"gps.mode": "eco"}'
            shadow: dict[str, Any] = {}
            while not shadow.get("meta") or "gps.mode" not in shadow["meta"]["fields"]:
                shadow = await at.json("carl", "shadow", DEVICE)
            assert shadow["desired"] == {"gps.mode": "eco"}
            assert shadow["meta"]["fields"]["gps.mode"]["origin"] == "hub:anna"
            assert (await at.json("anna", "conflicts"))["conflicts"] == []

            await agent.publish("battery", "soc", 81.5)
            state: list[Any] = []
            while not state:
                question = json.dumps({"device": DEVICE}).encode()
                answer = await client.request(carl.ask("state"), question, timeout=DEADLINE_S)
                state = [
                    each["data"]["value"]
                    for each in json.loads(answer.data)["state"]
                    if each["data"]["type"] == "soc"
                ]
            assert state == [81.5]
    finally:
        await client.close()

    for arguments in (
        *(("get", DEVICE), ("set", DEVICE, "a.b=1"), ("shadow", DEVICE), ("events", DEVICE)),
        *(("command", DEVICE, "door.unlock"), ("commands", DEVICE), ("conflicts", DEVICE)),
    ):
        assert "dora may command below depot only" in await at.refused("dora", *arguments)
    assert (await at.json("dora", "events"))["events"] == []
    assert (await at.json("dora", "devices"))["devices"] == []
    assert DEVICE not in await at.person("dora", "tree")
    assert "the right to command" in await at.refused("anna", "command", DEVICE, "door.unlock")
    assert "not 'bob'" in await at.refused("anna", "set", DEVICE, "a.b=1", "--who", "bob")

    listed = json.loads(await at.operator("user", "ls", "--json"))
    assert [(each["name"], each["may"], each["in_tree"]) for each in listed] == [
        ("anna", "write", True),
        ("carl", "command", True),
        ("dora", "command", True),
    ]
    await at.operator("user", "rm", "carl")
    assert "as carl" in await at.refused("carl", "get", DEVICE)
    await at.operator("node", "delete", "depot")
    assert "depot is not in the tree" in await at.refused("dora", "tree")
    assert "sees nothing" in await at.operator("user", "ls")


async def test_who_watches_or_listens_hears_what_changes(world: World, command_line: Line) -> None:
    at = command_line
    await world.vehicle(DEVICE)
    await at.operator("node", "move", DEVICE, "--to", "plant-7")
    await at.person("anna", "set", DEVICE, "gps.rate=5")
    async with at.running("anna", "watch", DEVICE, "gps") as watching:
        assert json.loads(await line(watching))["value"] == 5.0
        await at.person("anna", "set", DEVICE, "aux.on=1", "gps.rate=6")
        assert json.loads(await line(watching))["value"] == 6.0
    key = f"fleet/prod/veh/{DEVICE}/desired"
    await at.person("anna", "shadow", "set", key, "gps.mode=eco")
    async with at.running("anna", "shadow", "watch", key) as watching:
        assert json.loads(await line(watching))["said"] == {"gps.mode": "eco"}
        await at.person("anna", "shadow", "set", key, "--forget", "gps.mode")
        assert json.loads(await line(watching))["said"] == {}

    page = Examples("people.md")
    creds = str(at.creds("anna"))
    async with page.running(world, "listen.py", ANNA_CREDS=creds) as listening:
        assert await line(listening) == "listening"
        assert await page.printed(world, "ask.py", ANNA_CREDS=creds) == ["gps rate 5.0 hub:anna"]
        heard = await line(listening)
        while ".$.shadow." in heard:  # those come when the hub gets to them
            heard = await line(listening)
        assert heard == "up.plant-7.VID-001%2Fgps.rate.% 5.0"

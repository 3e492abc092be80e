"""People with a real vehicle below their group: the command line, and the page's examples."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from backhaul_agent.client import connect
from backhaul_hub.cli.main import cli
from backhaul_hub.people.login import connect_person, read_person
from tests.support.rig.parts import program

from .examples import DEADLINE_S, Examples, line

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.aio.subscription import Subscription

    from .conftest import World

pytestmark = [pytest.mark.nats]

DEVICE = "VID-001"


class Line:
    """The command line: of the operator, and of people with their credentials."""

    def __init__(self, world: World) -> None:
        self._world = world

    def creds(self, name: str) -> Path:
        return self._world.directory / f"{name}.creds"

    async def operator(self, *arguments: str) -> str:
        return await self._run(*arguments, "--dir", str(self._world.hub.directory))

    async def person(self, name: str, *arguments: str) -> str:
        server = self._world.hub.addresses()[0]
        return await self._run(*arguments, "--creds", str(self.creds(name)), "--server", server)

    @asynccontextmanager
    async def running(self, name: str, *arguments: str) -> AsyncIterator[Process]:
        """Run a command that goes on until it is ended."""
        server = self._world.hub.addresses()[0]
        login = ("--creds", str(self.creds(name)), "--server", server)
        process = await asyncio.create_subprocess_exec(
            *(program("backhaul-hub"), *arguments, *login, "--json"),
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            await process.wait()

    async def json(self, name: str, *arguments: str) -> Any:
        return json.loads(await self.person(name, *arguments, "--json"))

    async def commanded(self, name: str, *arguments: str) -> Any:
        """Send a command, and again under its id where the hub is slow to record it."""
        while True:
            try:
                return await self.json(name, "command", *arguments, "--id", "once")
            except AssertionError as error:
                if "not taken yet" not in str(error):
                    raise

    async def refused(self, name: str, *arguments: str) -> str:
        with pytest.raises(AssertionError) as caught:
            await self.person(name, *arguments)
        return str(caught.value)

    async def add(self, name: str, group: str, may: str) -> None:
        options = ("--group", group, "--may", may, "--out", str(self.creds(name)))
        assert f"{name} may {may} below {group}" in await self.operator(
            "user", "add", name, *options
        )

    async def _run(self, *arguments: str) -> str:
        done = await asyncio.to_thread(CliRunner().invoke, cli, list(arguments))
        assert done.exit_code == 0, f"{done.output} {done.exception}"
        return done.stdout


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

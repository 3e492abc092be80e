"""Local programs with keys of their own: each right works, and each wrong is refused by the real leaf server.

One vehicle with three programs: `gps` has some right of every kind, `other` none but its own node, and
`nosy` is let in and out again.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from backhaul_agent.apps.doors import ASKED
from backhaul_agent.client import Agent, connect
from backhaul_agent.client.artifacts import ArtifactClient
from backhaul_agent.client.config import ConfigClient
from backhaul_agent.client.history import history
from backhaul_agent.commands.handlers import NotDeliveredError, ask_program
from backhaul_agent.errors import AppError, NotKnownError, RefusedError
from backhaul_agent.ledger.command_rows import CommandRow, RunState
from backhaul_codec import Point
from tests.agent.app_rights import PUBLISH, RIGHTS, SUBSCRIBE, config_of, settled
from tests.agent.app_vehicle import Vehicle
from tests.support.nats_server import NatsServer
from tests.support.rig import patient
from tests.support.rig.ports import free_port
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.aio.msg import Msg


pytestmark = [pytest.mark.nats, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def vehicle(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Vehicle]:
    async with AsyncExitStack() as stack:
        made = Vehicle(tmp_path_factory.mktemp("apps"), stack, free_port())
        await made.start()
        assert "taken it over" in await made.run("app", "add", "gps", *RIGHTS)
        assert "taken it over" in await made.run("app", "add", "other")
        yield made


async def test_questions_beyond_what_may_wait_are_answered_that_we_are_busy(
    vehicle: Vehicle,
) -> None:
    """Else a program could fill the agent's memory with them, and all others would wait."""
    gps = (await vehicle.program("gps")).nats
    answers: list[bytes] = []
    inbox = gps.new_inbox()

    async def note(message: Msg) -> None:
        answers.append(message.data)

    await gps.subscribe(inbox, cb=note)
    asked = 5 * ASKED["pending_msgs_limit"]
    for _ in range(asked):
        await gps.publish("agent.get.battery", b"{}", reply=inbox)
    await until(lambda: len(answers) == asked, "each is answered")
    busy = [each for each in answers if b'"busy"' in each]
    assert 0 < len(busy) < asked


async def test_files_of_one_program_make_way_for_no_other_programs(vehicle: Vehicle) -> None:
    """Also where it poses as that one: the server says who asks."""
    await vehicle.run("app", "add", "cam", "--artifacts")
    posing = {"Nats-Request-Info": json.dumps({"acc": "APP_gps"})}
    body = json.dumps({"name": "a.log", "bytes": 2}).encode()
    gps, cam = await vehicle.program("gps"), await vehicle.program("cam")
    number = (await gps.ask("agent.artifact.put", body))["id"]
    for _ in range(10):
        await cam.nats.request("agent.artifact.put", body, timeout=30, headers=posing)
    said = await gps.ask(f"agent.artifact.write.{number}.0", b"ab")
    assert said == {"held": 2}
    ended = await gps.ask("agent.artifact.end", json.dumps({"id": number}).encode())
    assert ended["id"] == number


async def test_a_program_does_what_it_may(vehicle: Vehicle) -> None:
    gps = await vehicle.program("gps")
    await gps.publish("gps", "lat", 48.1)
    await gps.publish("front left", "pressure", 2.2, lane="live")
    assert (
        await gps.publish_batch("gps", [Point("gps", "lat", n, 1.0) for n in range(3000)]) == 3000
    )
    await gps.event("armed", reason="pilot")
    assert (await gps.status())["device"] == "VID-001"
    await ConfigClient(gps).set("pump", {"limit": 80.0})
    assert "files" in await ArtifactClient(gps).status()


async def test_a_program_reads_and_watches_its_nodes(vehicle: Vehicle) -> None:
    gps, agents = await vehicle.program("gps"), await config_of(vehicle)
    await agents.set("battery", {"limit": 90.0})
    await agents.change_tree("create", node="pack")
    await agents.change_tree("create", node="battery", parent="pack")
    await agents._agent.publish("battery", "soc", 81.5, time=7)
    config = ConfigClient(gps)
    assert [point["value"] for point in await config.get("battery", "limit")] == [90.0]
    pieces = [piece async for piece in history(gps, "battery", "soc")]
    assert [piece["values"] for piece in pieces] == [[81.5]]

    seen: list[tuple[str, Any]] = []

    async def watch() -> None:
        async for point in config.watch("battery"):
            seen.append((point["type"], point["value"]))  # noqa: PERF401 - it has no end

    watching = asyncio.create_task(watch())
    await until(lambda: ("limit", 90.0) in seen)
    await agents.set("pump", {"rate": 1.0})
    await agents.set("battery", {"limit": 70.0})
    await agents.set("battery", {"side": "left"}, parent="pack")
    await until(lambda: ("side", "left") in seen and ("limit", 70.0) in seen)
    watching.cancel()
    assert "rate" not in {type_ for type_, _ in seen}


async def test_what_is_refused_without_a_request_is_told_to_who_sent_it(vehicle: Vehicle) -> None:
    gps, other = await vehicle.login("apps/gps.nk"), await vehicle.login("apps/other.nk")
    mine = await gps.client.subscribe("agent.rejected.app.gps.>")
    theirs = await other.client.subscribe("agent.rejected.app.other.>")
    for login in (gps, other):
        await settled(login.client)
    await other.client.publish("app.other.lat", b"nonsense")
    await gps.client.publish("app.gps.lat", b"nonsense")
    note = json.loads((await mine.next_msg(30)).data)
    assert (note["subject"], note["error"]["code"]) == ("app.gps.lat", "bad_json")
    assert (await theirs.next_msg(30)).subject == "agent.rejected.app.other.lat"
    assert mine.pending_msgs == theirs.pending_msgs == 0


async def test_commands_go_to_the_program_that_has_them_and_back(vehicle: Vehicle) -> None:
    gps = await vehicle.program("gps")
    agent = (await vehicle.login("agent.nk")).client
    row = CommandRow(1, "id1", "door.unlock", b'{"door": 2}', 0, 1 << 62, RunState.RUNNING, 1)
    with pytest.raises(NotDeliveredError):
        await ask_program(agent, row, timeout_s=30, result_bytes_max=1000)

    async def unlock(asked: dict[str, Any]) -> dict[str, Any]:
        return {"unlocked": asked["params"]["door"]}

    subscription = await gps.on_command("door.unlock", unlock)
    await settled(gps.nats)
    end = await ask_program(agent, row, timeout_s=30, result_bytes_max=1000)
    assert (end.state, json.loads(end.result)) == (RunState.DONE, {"unlocked": 2})
    await subscription.unsubscribe()
    await settled(gps.nats)
    with pytest.raises(NotDeliveredError):
        await ask_program(agent, row, timeout_s=30, result_bytes_max=1000)


async def test_a_program_can_do_nothing_else(vehicle: Vehicle) -> None:
    other = await vehicle.login("apps/other.nk")
    publish, subscribe = await other.refusals(PUBLISH, SUBSCRIBE)
    assert (PUBLISH - publish, SUBSCRIBE - subscribe) == (set(), set())
    # Nor where rights are many, but for these rights.
    gps = await vehicle.login("apps/gps.nk")
    publish = {"app.gps", "app.gps.lat", "agent.event.armed", "agent.artifact.list"}
    subscribe = {"agent.rejected.app.gps.>", "agent.ready", "cmd.door.unlock"}
    refused = await gps.refusals(PUBLISH, SUBSCRIBE)
    assert refused == (PUBLISH - publish, SUBSCRIBE - subscribe)


async def test_a_right_to_one_node_is_no_right_to_another_in_the_payload(vehicle: Vehicle) -> None:
    gps = await vehicle.program("gps")
    forged = {"node": "battery", "points": [{"type": "limit", "value": 0}]}
    with pytest.raises(RefusedError, match="asked as of 'pump'"):
        await gps.ask("agent.set.pump", json.dumps(forged).encode())
    inbox = gps.nats.new_inbox()
    answers = await gps.nats.subscribe(inbox)
    asked = {"node": "gps", "type": "lat"}
    await gps.nats.publish("agent.history.battery", json.dumps(asked).encode(), reply=inbox)
    assert json.loads((await answers.next_msg(30)).data)["error"]["code"] == "bad_field"
    with pytest.raises(NotKnownError):
        await ConfigClient(Agent(gps.nats, 0.5, gps.clock)).set("battery", {"limit": 0.0})


async def test_answers_reach_nobody_but_who_asked(vehicle: Vehicle) -> None:
    """No reply subject is checked by any server, so what it names must be out of others' reach."""
    gps, other = await vehicle.program("gps"), await vehicle.login("apps/other.nk")
    started: list[Any] = []

    async def unlock(asked: dict[str, Any]) -> None:
        started.append(asked)

    commands = await gps.on_command("door.unlock", unlock)
    inbox = gps.nats.new_inbox()
    waiting = await gps.nats.subscribe(inbox)
    overheard = await other.client.subscribe("_INBOX.>")
    await settled(gps.nats)
    for reply in (
        "cmd.door.unlock",
        "cmdopen.door.unlock",
        inbox,
        "$JS.API.STREAM.DELETE.OUT_live",
    ):
        await other.client.publish("app.other.x", b"1", reply=reply)
        await other.client.publish("agent.status", b"", reply=reply)
    # What would have come by then has: the same ways, in the same order.
    await other.client.request("app.other.x", b"1", timeout=30)
    await gps.publish("gps", "lat", 1.0)
    await settled(gps.nats)
    assert started == []
    await commands.unsubscribe()
    assert waiting.pending_msgs == 0
    await until(lambda: bool(overheard.pending_msgs))
    # Nor is what gps was answered heard by another, where every program's inboxes have one prefix.
    answered = (gps.nats._resp_sub_prefix or b"").decode()
    heard = [await overheard.next_msg(30) for _ in range(overheard.pending_msgs)]
    assert answered.startswith("_INBOX.")
    assert heard
    assert not [each.subject for each in heard if each.subject.startswith(answered)]
    streams = (await vehicle.login("agent.nk")).client.jetstream()
    assert (await streams.stream_info("OUT_live")).config.name == "OUT_live"


async def test_nobody_is_let_in_without_a_key_until_an_operator_says_so(vehicle: Vehicle) -> None:
    with pytest.raises(NatsError, match="Authorization"):
        await vehicle.login()
    with pytest.raises(NatsError, match="Authorization"):
        await vehicle.login(user="open", password="")
    assert "taken it over" in await vehicle.run("app", "open")
    assert "Whoever has no key" in await vehicle.run("app", "ls")
    async with connect(vehicle.url) as anybody:
        await anybody.publish("anything", "x", 1.0)
        await anybody.event("landed")
        await ConfigClient(anybody).set("anything", {"x": 1.0})
        assert await ConfigClient(anybody).get()
        assert (await ConfigClient(anybody).tree())["root"] == "VID-001"

        # A command goes to who was given it, and to whoever takes it only where nobody was.
        took: list[str] = []

        async def take(asked: dict[str, Any]) -> None:
            took.append(asked["name"])

        await anybody.on_command(">", take)
        await settled(anybody.nats)
        agent = (await vehicle.login("agent.nk")).client
        gps = await vehicle.program("gps")

        async def unlock(_: dict[str, Any]) -> str:
            return "by gps"

        await gps.on_command("door.unlock", unlock)
        await settled(gps.nats)
        for name, result in (("door.unlock", b'"by gps"'), ("horn", b"null")):
            row = CommandRow(1, "id1", name, b"{}", 0, 1 << 62, RunState.RUNNING, 1)
            end = await ask_program(agent, row, timeout_s=30, result_bytes_max=99)
            assert (end.state, end.error, end.result) == (RunState.DONE, "", result)
        assert took == ["horn"]
    login = await vehicle.login()
    private = {each for each in PUBLISH if not each.startswith(("app", "agent"))}
    private |= {"agent.commands", "agent.events", "agent.waiting"}
    hidden = {">", "app.>", "agent.>", "agent.in.>", "cmdopen.>", "$JS.API.>", "hubapi.>"}
    assert await login.refusals(private, hidden) == (private, hidden)
    assert "taken it over" in await vehicle.run("app", "close")
    await until(lambda: login.client.is_closed)
    with pytest.raises(NatsError, match="Authorization"):
        await vehicle.login()


async def test_rights_change_and_end_at_once_and_nobody_else_is_disturbed(vehicle: Vehicle) -> None:
    gps, agent = await vehicle.program("gps"), await vehicle.login("agent.nk")
    connected = gps.nats.stats["reconnects"], (await gps.status())["connects"]
    await vehicle.run("app", "add", "nosy", "--read", "battery")
    seed = (vehicle.dir / "apps" / "nosy.nk").read_text()
    # Without reconnecting: nats-py leaves a socket behind for every time that it is refused.
    nosy = await vehicle.login("apps/nosy.nk")
    assert b"kept" in (await nosy.client.request("app.nosy.x", b"1", timeout=30)).data
    assert b"points" in (await nosy.client.request("agent.get.battery", b"", timeout=30)).data

    await vehicle.run("app", "add", "nosy", "--publish", "elsewhere")
    assert (vehicle.dir / "apps" / "nosy.nk").read_text() == seed
    nosy = await vehicle.login("apps/nosy.nk")
    assert b"kept" in (await nosy.client.request("app.elsewhere.x", b"1", timeout=30)).data
    gone = {"app.nosy.x", "agent.get.battery"}
    assert await nosy.refusals(gone, ()) == (gone, set())

    shown = json.loads(await vehicle.run("app", "ls", "--json"))
    assert shown["apps"]["nosy"]["publish"] == ["elsewhere"]
    assert "read" not in shown["apps"]["nosy"]
    assert "taken it over" in await vehicle.run("app", "rm", "nosy")
    assert not (vehicle.dir / "apps" / "nosy.nk").exists()
    await until(lambda: nosy.client.is_closed)
    with pytest.raises(NatsError, match="Authorization"):
        await vehicle.login(nkeys_seed_str=seed.strip())
    assert (gps.nats.stats["reconnects"], (await gps.status())["connects"]) == connected
    assert agent.client.is_connected
    await gps.publish("gps", "lat", 1.0)


async def test_the_key_of_the_system_account_reads_configuration_and_does_nothing_else(
    vehicle: Vehicle,
) -> None:
    system = await vehicle.login("system.nk")
    asked = {"$SYS.REQ.SERVER.PING.VARZ", "$SYS.REQ.ACCOUNT.VEH.CONNZ", "agent.status", "app.x.y"}
    assert await system.refusals(asked, {"$SYS.>", "app.>"}) == (asked, {"$SYS.>", "app.>"})


async def test_no_hub_reaches_the_vehicle_s_api_or_programs_whatever_it_permits_itself(
    vehicle: Vehicle, tmp_path: Path
) -> None:
    """A hub that has given itself every right in the account of the vehicle's user."""
    agent = (await vehicle.login("agent.nk")).client
    await agent.jetstream().add_stream(name="VICTIM", subjects=["victim"])
    hub = NatsServer(
        tmp_path / "hub",
        domain="hub",
        extra=f'leafnodes {{ listen: "127.0.0.1:{vehicle.hub_port}" }}\n'
        "accounts { A { jetstream: enabled, users: [{ user: any, password: any }] } }",
    )
    hub.start()
    try:
        async with await patient.connect(hub.url, user="any", password="any") as client:

            async def there(subject: str, wait_s: float = 30.0) -> bool:
                try:
                    await client.request(subject, b"", timeout=wait_s)
                except NoRespondersError:
                    return False
                except NatsError:  # it arrives, and its answer may not leave the vehicle
                    return True
                return True

            # What a hub needs arrives, so the link is up; of all else nobody there has heard.
            known = "$JS.VID-001.API.CONSUMER.RESET.OUT_live.tok1"
            await until(lambda: there(known, wait_s=0.3), deadline_s=60)
            await client.publish("$JS.VID-001.API.STREAM.DELETE.VICTIM", b"", reply="anywhere")
            api = [
                f"$JS.VID-001.API.{verb}" for verb in ("INFO", "STREAM.NAMES", "DIRECT.GET.VICTIM")
            ]
            local = ["app.gps.x", "agent.status", "cmd.door.unlock", "cmdopen.x", "$SRV.PING"]
            assert not [each for each in (*api, *local) if await there(each)]
        assert (await agent.jetstream().stream_info("VICTIM")).config.name == "VICTIM"
    finally:
        hub.stop()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("add", "../x"), "is no name of a program"),
        (("add", "a.b"), "is no name of a program"),
        (("add", "x", "--command", "cmd.>"), "command"),
        (("add", "x", "--command", "door.unlock"), "gps carries out door.unlock"),
        (("add", "x", "--publish", ""), "is no name of a node"),
        (("add", "x", "--read", "n" * 300), "is no name of a node"),
        (("add", "x", *("--set", "n") * 65), "set"),
        (("rm", "nobody"), "there is no program nobody"),
    ],
)
async def test_a_mistake_is_refused_and_changes_nothing(
    vehicle: Vehicle, words: tuple[str, ...], complaint: str
) -> None:
    before = {path: path.read_text() for path in vehicle.dir.rglob("*") if path.is_file()}
    with pytest.raises(AppError, match=complaint):
        await vehicle.run("app", *words)
    assert {path: path.read_text() for path in vehicle.dir.rglob("*") if path.is_file()} == before

"""People at a real hub: what they may ask and hear, and what they may not, however they try.

One hub for all tests here, so each leaves the tree as it found it: plant-7 above VID-001, depot above
VID-002. People log in as the server knows them; everything below is what any NATS client can send.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import stat
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import nats
import pytest
import pytest_asyncio
from click.testing import CliRunner
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError

from backhaul_codec.certificates import HOUR_NS
from backhaul_hub.cli import cli
from backhaul_hub.clock import SystemClock
from backhaul_hub.commands._tell import tell_hub
from backhaul_hub.config import load
from backhaul_hub.enrol import DeviceSettings, create_device
from backhaul_hub.errors import ConfigError, RightsError
from backhaul_hub.keys import read_keys
from backhaul_hub.logins import new_login
from backhaul_hub.people import May, Person
from backhaul_hub.people_book import add_person, remove_person
from backhaul_hub.people_login import read_person
from demo import patient
from demo.patient import PatientClient
from demo.rig import HubRig
from tests.support.nats_server import NatsServer
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.aio.client import Client
    from nats.aio.msg import Msg

pytestmark = [pytest.mark.nats, pytest.mark.asyncio(loop_scope="module")]

MINE, THEIRS = "VID-001", "VID-002"
ANNA = Person("anna", "plant-7", May.WRITE)
BERTA = Person("berta", "plant-7", May.READ)
CARL = Person("carl", "fleet", May.COMMAND)
DORA = Person("dora", "depot", May.COMMAND)
EVERYBODY = (ANNA, BERTA, CARL, DORA)
# Whom a hub gave too much.
EVE = Person("eve", "plant-7", May.READ)
WAIT_S = 60.0
QUIET_S = 0.3


class Guest:
    """One person's connection; `refused` is what the server refused it."""

    def __init__(self, person: Person, client: Client, refused: list[str]) -> None:
        self.person = person
        self.client = client
        self.refused = refused

    async def ask(self, service: str, **question: Any) -> dict[str, Any]:
        """Ask as any NATS client does."""
        return await self.ask_on(self.person.ask(service), question)

    async def ask_on(self, subject: str, question: dict[str, Any]) -> dict[str, Any]:
        message = await self.client.request(subject, json.dumps(question).encode(), timeout=WAIT_S)
        answer: dict[str, Any] = json.loads(message.data)
        return answer

    async def error(self, service: str, **question: Any) -> str:
        answer = await self.ask(service, **question)
        return f"{answer['error']['message']} ({answer['error']['hint']})"

    async def is_refused(self, *, publish: str = "", subscribe: str = "") -> bool:
        """Try it, and tell whether the server refused it."""
        if publish:
            await self.client.publish(publish, b"{}")
        if subscribe:
            await self.client.subscribe(subscribe)
        # The server answers in order: with this refusal all others have come.
        await self.client.publish("no.right.to.this", b"x")
        await until(lambda: any("no.right.to.this" in error for error in self.refused))
        found = "\n".join(self.refused).lower()
        self.refused.clear()
        return f'"{(publish or subscribe).lower()}"' in found


class People:
    """A running hub, its operator, and everybody."""

    def __init__(self, hub: HubRig, operator: Client, stack: AsyncExitStack) -> None:
        self.hub = hub
        self.operator = operator
        self.stack = stack
        self.anna: Guest
        self.berta: Guest
        self.carl: Guest
        self.dora: Guest
        self.eve: Guest

    async def log_in(self, person: Person) -> Guest:
        refused: list[str] = []

        async def note(error: Exception) -> None:
            refused.append(str(error))

        client = await patient.connect(
            self.hub.addresses(),
            user_credentials=str(self.creds(person)),
            inbox_prefix=person.inbox,
            error_cb=note,
            max_reconnect_attempts=0,
        )
        self.stack.push_async_callback(client.close)
        return Guest(person, client, refused)

    def creds(self, person: Person) -> Path:
        return self.hub.directory / "people" / f"{person.name}.creds"

    async def add(self, person: Person) -> Guest:
        """Give somebody credentials, and log in with them."""
        await add_person(self.hub.directory, SystemClock(), person, self.creds(person))
        return await self.log_in(person)

    async def is_kept_out(self, person: Person) -> bool:
        """Tell whether the server refuses somebody's credentials."""
        refused: list[str] = []

        async def note(error: Exception) -> None:
            refused.append(str(error))

        client = PatientClient()
        with contextlib.suppress(nats.errors.Error):
            await client.connect(
                self.hub.addresses(),
                user_credentials=str(self.creds(person)),
                error_cb=note,
                allow_reconnect=False,
            )
        await client.close()
        return any("authorization" in each.lower() for each in refused)

    def add_with_all_rights(self, person: Person) -> None:
        """Give somebody credentials of a hub that gives too much."""
        keys, now_s = read_keys(self.hub.directory), SystemClock().now_ns() // 10**9
        self.creds(person).write_text(new_login(keys, person.name, "PEOPLE", now_s=now_s).text())

    async def do(self, service: str, **question: Any) -> dict[str, Any]:
        """Ask as the hub's operator."""
        message = await self.operator.request(
            f"hub.{service}", json.dumps(question).encode(), timeout=WAIT_S
        )
        answer: dict[str, Any] = json.loads(message.data)
        assert "error" not in answer, answer
        return answer

    async def node(self, do: str, address: str, **question: Any) -> None:
        await self.do("node", do=do, address=address, **question)

    async def values(self, device: str) -> dict[str, Any]:
        answer = await self.do("get", device=device)
        return {f"{each['node']}.{each['type']}": each["value"] for each in answer["points"]}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def people(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[People]:
    directory: Path = tmp_path_factory.mktemp("people")
    async with AsyncExitStack() as stack:
        hub = HubRig(directory / "hub", watermark_interval_s=0.2)
        await hub.init()
        for device in (MINE, THEIRS):
            await create_device(
                hub.directory, load(hub.directory), SystemClock(), device, DeviceSettings()
            )
        stack.push_async_callback(hub.stop)
        await hub.start()
        operator = await hub.connect()
        stack.push_async_callback(operator.close)
        some = People(hub, operator, stack)
        for group, device in (("plant-7", MINE), ("depot", THEIRS)):
            await some.node("create", group)
            await some.node("move", device, under=group)
        for person in EVERYBODY:
            setattr(some, person.name, await some.add(person))
        some.add_with_all_rights(EVE)
        some.eve = await some.log_in(EVE)
        yield some


async def test_one_sets_and_sees_what_is_below_the_group(people: People) -> None:
    answer = await people.anna.ask(
        "set", device=MINE, node="gps", points=[{"type": "rate", "value": 5}]
    )
    (point,) = answer["points"]
    assert point["origin"] == "hub:anna"
    for guest in (people.anna, people.berta, people.carl):
        (seen,) = (await guest.ask("get", device=MINE, paths=["gps.rate"]))["points"]
        assert (seen["value"], seen["origin"]) == (5.0, "hub:anna")
    assert await people.dora.error("get", device=MINE) == (
        "dora may command below depot only (VID-001 is not below it)"
    )


async def test_the_tree_and_the_devices_end_where_the_right_does(people: People) -> None:
    tree = await people.berta.ask("tree")
    assert [each["node"] for each in tree["nodes"]] == ["VID-001", "VID-001/gps", "plant-7"]
    assert "VID-002" not in json.dumps(tree)
    report = await people.berta.ask("devices")
    assert [each["device"] for each in report["devices"]] == [MINE]
    assert report["streams"] == []
    whole = await people.carl.ask("devices")
    assert [each["device"] for each in whole["devices"]] == [MINE, THEIRS]


async def test_what_changes_is_heard_below_the_group_alone(people: People) -> None:
    heard = await people.berta.client.subscribe(people.berta.person.live)
    await people.berta.client.flush()
    await people.do("set", device=THEIRS, node="gps", points=[{"type": "rate", "value": 1}])
    await people.do("set", device=MINE, node="gps", points=[{"type": "rate", "value": 2}])
    message = await heard.next_msg(timeout=WAIT_S)
    assert message.subject == "up.plant-7.VID-001%2Fgps.rate.%"
    assert json.loads(message.data)["value"] == 2.0
    await heard.unsubscribe()


async def test_a_device_that_moves_is_lost_and_found_at_once(people: People) -> None:
    heard = await people.berta.client.subscribe(people.berta.person.live)
    await people.berta.client.flush()
    await people.node("move", MINE, under="depot")
    try:
        assert "berta may read below plant-7 only" in await people.berta.error("get", device=MINE)
        assert (await people.berta.ask("devices"))["devices"] == []
        assert (await people.dora.ask("get", device=MINE))["device"] == MINE
        await people.do("set", device=MINE, node="gps", points=[{"type": "rate", "value": 77}])
        await people.do("set", device="fleet", node="plant-7", points=[{"type": "end", "value": 1}])
        said: list[tuple[str, str | None]] = []
        while not said or said[-1][0] != "end":
            point = json.loads((await heard.next_msg(timeout=WAIT_S)).data)
            said.append((point["type"], point.get("parent")))
        # Its way out is the last that is heard of it; and not where it went.
        assert said == [("nodeType", "plant-7"), ("end", None)]
    finally:
        await heard.unsubscribe()
        await people.node("move", MINE, under="plant-7")
    assert (await people.berta.ask("get", device=MINE))["device"] == MINE


async def test_a_device_that_is_added_below_is_seen_without_a_new_right(people: People) -> None:
    await people.node("mirror", THEIRS, under="plant-7")
    try:
        report = await people.berta.ask("devices")
        assert [each["device"] for each in report["devices"]] == [MINE, THEIRS]
    finally:
        await people.node("delete", THEIRS, under="plant-7")
    assert "VID-002 is not below it" in await people.berta.error("get", device=THEIRS)


async def test_points_of_groups_are_those_of_ones_own(people: People) -> None:
    for group in ("plant-7", "depot"):
        await people.do("set", device="fleet", node=group, points=[{"type": "cap", "value": 3}])
    answer = await people.anna.ask("get", device="fleet")
    assert {(each["node"], each.get("parent", "")) for each in answer["points"]} == {
        ("plant-7", ""),
        ("VID-001", "plant-7"),
    }
    points = [{"type": "cap", "value": 9}]
    assert "error" not in await people.anna.ask(
        "set", device="fleet", node="plant-7", points=points
    )
    assert "depot is not below it" in await people.anna.error(
        "set", device="fleet", node="depot", points=points
    )


async def test_nobody_pulls_a_device_below_their_group(people: People) -> None:
    edge = [{"type": "nodeType", "value": "device"}]
    for node in (THEIRS, MINE, "plant-7"):
        said = await people.anna.error(
            "set", device="fleet", node=node, parent="plant-7", points=edge
        )
        assert "for operators to change" in said
    assert "for operators" in await people.anna.error(
        "set", device="fleet", node=f"{MINE}/gps", points=edge
    )
    assert "there is no service 'node'" in await people.anna.error(
        "node", do="move", address=THEIRS, under="plant-7"
    )


async def test_a_right_to_read_writes_nothing(people: People) -> None:
    before = await people.values(MINE)
    for service, question in (
        ("set", {"device": MINE, "node": "gps", "points": [{"type": "rate", "value": 666}]}),
        ("desire", {"device": MINE, "points": [{"node": "gps", "type": "rate", "value": 666}]}),
        ("revert", {"id": 1}),
        ("command", {"device": MINE, "name": "door.unlock"}),
    ):
        said = await people.berta.error(service, **question)
        assert "berta may read below plant-7 only, and this takes the right to" in said
    assert "the right to command" in await people.anna.error(
        "command", device=MINE, name="door.unlock"
    )
    assert await people.values(MINE) == before


async def test_who_writes_cannot_be_said(people: People) -> None:
    points = [{"type": "rate", "value": 1}]
    said = await people.anna.error("set", device=MINE, node="gps", points=points, who="berta")
    assert "who writes is anna, not 'berta'" in said
    assert "who" in await people.carl.error("command", device=MINE, name="a", who="anna")


async def test_a_command_is_its_senders_and_its_device_below(people: People) -> None:
    sent = await people.carl.ask("command", device=MINE, name="door.unlock", params={"n": 1})
    assert (sent["who"], sent["params"]) == ("carl", {"n": 1})
    assert sent["state"] in ("queued", "sent")
    listed = (await people.berta.ask("commands"))["commands"]
    assert [each["id"] for each in listed] == [sent["id"]]
    assert (await people.dora.ask("commands"))["commands"] == []
    assert "VID-001 is not below" in await people.dora.error("command", device=MINE, name="a")
    assert "VID-001 is not below" in await people.dora.error("commands", device=MINE)


@pytest.mark.parametrize("device", ["VID-404", "*", ">", "a.b", "", "VID-001/gps"])
async def test_what_is_no_device_is_refused_and_harms_nothing(people: People, device: str) -> None:
    for service, question in (
        ("get", {}), ("state", {}), ("shadow", {}), ("events", {"since_ns": 0}), ("commands", {}),
        ("desire", {"points": []}), ("command", {"name": "a"}), ("conflicts", {}),
    ):  # fmt: skip
        for guest in (people.carl, people.dora):
            assert "error" in await guest.ask(service, device=device, **question), service
    assert (await people.carl.ask("get", device=MINE))["device"] == MINE


async def test_garbage_is_answered_and_the_control_plane_goes_on(people: People) -> None:
    for body in (b"[]", b"{", b"\xff", b"[" * 100_000, b'{"device": 1}', b'{"x": 1}'):
        message = await people.anna.client.request(ANNA.ask("get"), body, timeout=WAIT_S)
        assert "error" in json.loads(message.data)
    assert (await people.anna.ask("get", device=MINE))["device"] == MINE


async def test_the_server_refuses_all_subjects_but_ones_own(people: People) -> None:
    guest = people.berta
    for subject in (
        DORA.ask("get"),
        ANNA.ask("set"),
        Person("berta", "plant-7", May.WRITE).ask("set"),
        Person("berta", "fleet", May.READ).ask("get"),
        Person("berta", "depot", May.READ).ask("get"),
        "hub.get", "hub.set", "hub.node", "hub.reload", "hub.changed.VID-001",
        "up.plant-7.VID-001.x.%", "inbox.berta.x", "inbox.anna.x",
        "fleet.prod.veh.VID-001.cmd.a", "in.VID-001.p.x", "dn.VID-001.x", "clk.VID-001",
        "$JS.API.INFO", "$JS.API.STREAM.DELETE.UP_00", "$JS.API.STREAM.MSG.GET.TWIN_STATE",
        "jobsapi.STREAM.LIST", "hubapi.CONSUMER.RESET.DOWN_00.x", "$JS.ACK.x", "_R_.x.y",
        "$SYS.REQ.USER.INFO", "$SYS.REQ.CLAIMS.UPDATE", "$KV.TWIN_SHADOW.x", "enrol.x",
    ):  # fmt: skip
        assert await guest.is_refused(publish=subject), subject
    for subject in (
        ">", "*.>", "up.>", "up.*.>", "up.*.VID-002.>", "up.depot.>", DORA.live, "up.fleet.>",
        "ask.>", "ask.*.*.*.*", ANNA.ask("set"), "inbox.>", "inbox.*.>", "inbox.anna.>", "_INBOX.>",
        "hub.>", "hub.changed.>", "fleet.>", "fleet.prod.veh.VID-001.res.*", "dn.>", "$JS.>",
        "$SYS.>", "$KV.>", "_R_.>", "jobsapi.>", "clkr.>", "blobr.>",
    ):  # fmt: skip
        assert await guest.is_refused(subscribe=subject), subject


async def test_answers_go_nowhere_but_into_ones_own_inbox(people: People) -> None:
    """A reply subject is not checked by any server: the hub looks at it before it answers."""
    heard: list[Msg] = []

    async def hear(message: Msg) -> None:
        # What becomes of the command of another test is told here as well.
        if b'"points"' in message.data or b'"error": {' in message.data:
            heard.append(message)

    listeners = [
        await people.anna.client.subscribe(f"{ANNA.inbox}.>", cb=hear),
        await people.anna.client.subscribe(ANNA.live, cb=hear),
        await people.operator.subscribe("hub.changed.>", cb=hear),
        await people.operator.subscribe("fleet.>", cb=hear),
    ]
    await people.anna.client.flush()
    await people.operator.flush()
    before = await people.values(MINE)
    body = json.dumps({"device": MINE}).encode()
    for reply in (
        f"{ANNA.inbox}.x",
        "inbox.bertax.x",
        "inbox.berta",
        "up.plant-7.VID-001%2Fgps.rate.%",
        ANNA.ask("set"),
        "hub.changed.VID-001",
        "hub.set",
        "fleet.prod.veh.VID-001.cmd.door",
        "$JS.API.STREAM.DELETE.TWIN_STATE",
        "",
    ):
        await people.berta.client.publish(BERTA.ask("get"), body, reply=reply)
    # Questions are read in order: with this answer all others would have come.
    assert (await people.berta.ask("get", device=MINE))["device"] == MINE
    await people.operator.flush()
    await people.anna.client.flush()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(QUIET_S):
            await until(lambda: bool(heard))
    assert await people.values(MINE) == before
    for listener in listeners:
        await listener.unsubscribe()


async def test_a_write_that_wants_no_answer_is_not_done(people: People) -> None:
    before = await people.values(MINE)
    question = {"device": MINE, "node": "gps", "points": [{"type": "rate", "value": 31.0}]}
    for reply in ("", "inbox.berta.x"):
        await people.anna.client.publish(
            ANNA.ask("set"), json.dumps(question).encode(), reply=reply
        )
    await people.anna.ask("get", device=MINE)
    assert await people.values(MINE) == before


async def test_too_many_questions_of_one_are_refused_and_others_are_answered(
    people: People,
) -> None:
    inbox = people.dora.client.new_inbox()
    answers = await people.dora.client.subscribe(f"{inbox}.*")
    question = json.dumps({"since_ns": SystemClock().now_ns() - HOUR_NS}).encode()
    for number in range(50):
        await people.dora.client.publish(DORA.ask("events"), question, reply=f"{inbox}.{number}")
    assert (await people.anna.ask("get", device=MINE))["device"] == MINE
    said = [await answers.next_msg(timeout=WAIT_S) for _ in range(50)]
    assert any(b"are being answered already" in each.data for each in said)
    assert any(b'"events"' in each.data for each in said)
    await answers.unsubscribe()


async def test_an_unknown_service_says_which_there_are(people: People) -> None:
    assert "commands, conflicts, desire" in await people.anna.error("own")
    with pytest.raises((NoRespondersError, NatsTimeoutError)):
        await people.anna.client.request(f"{ANNA.ask('get')}.all", b"", timeout=0.5)


async def test_with_wider_permissions_the_same_attempts_succeed(people: People) -> None:
    """What refuses them above are the permissions, and nothing that happens to be in the way."""
    heard: dict[str, Msg] = {}

    async def hear(message: Msg) -> None:
        heard[message.subject] = message

    eve = people.eve.client
    listener = await eve.subscribe(">", cb=hear)
    await eve.flush()
    forged = {"device": THEIRS, "node": "gps", "points": [{"type": "rate", "value": 666}]}
    question = json.dumps(forged).encode()
    await eve.publish(DORA.ask("set"), question, reply=f"{DORA.inbox}.forged")
    await until(lambda: f"{DORA.inbox}.forged" in heard)
    (point,) = json.loads(heard[f"{DORA.inbox}.forged"].data)["points"]
    assert (point["device"], point["origin"]) == (THEIRS, "hub:dora")
    await until(lambda: "up.depot.VID-002%2Fgps.rate.%" in heard)
    # Not even she gets at anything but questions, answers and what is told: nothing else is imported.
    for subject in ("hub.get", "jobsapi.STREAM.LIST", "fleet.prod.veh.VID-001.cmd.a"):
        with pytest.raises((NoRespondersError, NatsTimeoutError)):
            await eve.request(subject, b"{}", timeout=QUIET_S)
    answer = await eve.request("$JS.API.STREAM.NAMES", b"{}", timeout=WAIT_S)
    assert json.loads(answer.data)["error"]["description"] == "JetStream not enabled for account"
    await listener.unsubscribe()


async def test_who_is_removed_is_cut_and_never_comes_back(people: People) -> None:
    emil = Person("emil", "plant-7", May.READ)
    guest = await people.add(emil)
    kept = people.creds(emil).read_text()
    assert (await guest.ask("get", device=MINE))["device"] == MINE
    directory = people.hub.directory
    await remove_person(directory, SystemClock(), "emil")
    assert await tell_hub(directory, load(directory)) is None
    await until(lambda: not guest.client.is_connected)
    assert await people.is_kept_out(emil)
    # Under the same name somebody gets another key; the old one stays void.
    await people.add(emil)
    people.creds(emil).write_text(kept)
    assert await people.is_kept_out(emil)
    for other in (people.anna, people.berta, people.carl, people.dora):
        assert other.client.is_connected
    with pytest.raises(RightsError, match="there is no user nobody"):
        await remove_person(directory, SystemClock(), "nobody")


async def test_of_a_group_that_is_deleted_there_is_nothing_to_ask(people: People) -> None:
    await people.node("create", "hall")
    await people.node("mirror", MINE, under="hall")
    gero = await people.add(Person("gero", "hall", May.READ))
    assert (await gero.ask("get", device=MINE))["device"] == MINE
    await people.node("delete", "hall")
    for service, question in (("get", {"device": MINE}), ("tree", {}), ("devices", {})):
        assert "hall is not in the tree" in await gero.error(service, **question)
    await people.node("delete", MINE, under="hall")


async def test_nobody_is_added_twice_or_below_what_there_is_not(people: People) -> None:
    directory = people.hub.directory
    for person, why in (
        (Person("anna", "depot", May.READ), "there is a user anna already"),
        (Person("fritz", "VID-404", May.READ), "there is no group or device VID-404"),
        (Person("fritz", "VID-001/gps", May.READ), "there is no group or device VID-001/gps"),
        (Person("fr itz", "depot", May.READ), "no name of a user"),
    ):
        with pytest.raises(RightsError, match=why):
            await add_person(directory, SystemClock(), person, directory / "x.creds")
    assert not (directory / "x.creds").exists()
    assert stat.S_IMODE(people.creds(ANNA).stat().st_mode) == 0o600


async def test_credentials_that_are_of_no_person_are_refused(people: People) -> None:
    directory = people.hub.directory
    (directory / "empty.creds").write_text("")
    (directory / "binary.creds").write_bytes(b"\xff")
    for name, why in (
        ("people/nobody.creds", "No such file"),
        ("empty.creds", "no NATS USER JWT"),
        ("binary.creds", "no text"),
        ("creds/control.creds", "of no person"),
        ("people/eve.creds", "of no person"),
    ):
        with pytest.raises(ConfigError, match=why):
            read_person(directory / name)
    assert read_person(people.creds(ANNA)) == ANNA
    both = ["tree", "--creds", "x", "--dir", "y"]
    assert "--dir or --creds, not both" in CliRunner().invoke(cli, both).output


async def test_a_service_would_be_answered_wherever_the_asker_says(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Why questions are messages: what the hub refuses above, a server lets pass for a service."""
    accounts = f"""
    accounts {{
      HUB {{ users: [ {{ user: control, password: x }} ], exports: [ {{ service: "ask.>" }} ] }}
      PEOPLE {{
        users: [
          {{ user: anna, password: x }}
          {{ user: berta, password: x, permissions: {{
            publish: ["{BERTA.questions}"], subscribe: ["{BERTA.inbox}.>"] }} }}
        ]
        imports: [ {{ service: {{ account: HUB, subject: "ask.>" }} }} ]
      }}
    }}"""
    server = NatsServer(tmp_path_factory.mktemp("service") / "server", extra=accounts)
    server.start()
    async with AsyncExitStack() as stack:
        stack.callback(server.stop)
        clients = []
        for user in ("control", "anna", "berta"):
            client = await patient.connect(server.url, user=user, password="x")
            stack.push_async_callback(client.close)
            clients.append(client)
        control, anna, berta = clients
        replies: list[str] = []

        async def answer(message: Msg) -> None:
            replies.append(message.reply)
            await message.respond(b"forged")

        await control.subscribe("ask.>", cb=answer)
        heard = await anna.subscribe(f"{ANNA.inbox}.>")
        for client in (control, anna):
            await client.flush()
        await berta.publish(BERTA.ask("get"), b"{}", reply=f"{ANNA.inbox}.x")
        assert (await heard.next_msg(timeout=WAIT_S)).data == b"forged"
        assert not replies[0].startswith("inbox."), "and the hub cannot see it"

"""People who try what they may not: other subjects, others' answers, too many questions, gone or false logins.

One hub for all tests here, so each leaves the tree as it found it.
"""

from __future__ import annotations

import asyncio
import json
import stat
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError

from backhaul_codec.assurance.completeness import HOUR_NS
from backhaul_hub.cli._act import done
from backhaul_hub.cli.main import cli
from backhaul_hub.errors import ConfigError, HubError, RightsError
from backhaul_hub.people.identity import May, Person
from backhaul_hub.people.login import read_person
from backhaul_runtime.clock import SystemClock
from tests.support.act_names import ACTS
from tests.support.hub_acts import add_person
from tests.support.nats_server import NatsServer
from tests.support.rig import patient
from tests.support.waiting import until

from .people_hub import (
    ANNA,
    BERTA,
    DORA,
    MINE,
    QUIET_S,
    THEIRS,
    WAIT_S,
    People,
)

if TYPE_CHECKING:
    from nats.aio.msg import Msg

pytestmark = [pytest.mark.nats, pytest.mark.asyncio(loop_scope="module")]


async def test_the_server_refuses_all_subjects_but_ones_own(people: People) -> None:
    guest = people.berta
    for subject in (
        DORA.ask("get"),
        ANNA.ask("set"),
        Person("berta", "plant-7", May.WRITE).ask("set"),
        Person("berta", "fleet", May.READ).ask("get"),
        Person("berta", "depot", May.READ).ask("get"),
        "hub.get", "hub.history", "history.ask", "hub.set", "hub.node", "hub.changed.VID-001", *(f"hub.{service}" for service in ACTS),
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
        "hub.>", "hub.changed.>", "history.>", "fleet.>", "fleet.prod.veh.VID-001.res.*", "dn.>", "$JS.>",
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


async def test_who_is_removed_is_cut_and_never_comes_back(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "backhaul_hub.nats.system_requests._WAIT_S", 60.0
    )  # for the one that there is
    emil = Person("emil", "plant-7", May.READ)
    guest = await people.add(emil)
    kept = people.creds(emil).read_text()
    assert (await guest.ask("get", device=MINE))["device"] == MINE
    directory = people.hub.directory
    assert await done(directory, "user-rm", {"name": "emil"}) == {"problem": ""}
    await until(lambda: not guest.client.is_connected)
    assert await people.is_kept_out(emil)
    # Under the same name somebody gets another key; the old one stays void.
    await people.add(emil)
    people.creds(emil).write_text(kept)
    assert await people.is_kept_out(emil)
    for other in (people.anna, people.berta, people.carl, people.dora):
        assert other.client.is_connected
    with pytest.raises(HubError, match="there is no user nobody"):
        await done(directory, "user-rm", {"name": "nobody"})


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

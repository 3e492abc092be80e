"""How the command line asks the control plane: again, where an answer was lost and asking twice does no harm."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from nats.aio.msg import Msg

from backhaul_hub.cli import _ask
from backhaul_hub.cli.values import command
from backhaul_hub.config import Login
from backhaul_hub.errors import HubError
from backhaul_hub.nats import connection
from backhaul_hub.nats import system_requests as fellow_servers
from backhaul_hub.people.ask_service import OF_ONE_MAX
from tests.support.keyed_server import KeyedServer
from tests.support.rig import patient
from tests.support.rig.shaped_relay import ShapedRelay
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nats.aio.client import Client

    from tests.support.nats_server import NatsServer

pytestmark = [pytest.mark.nats]

OPERATOR = _ask.Operator(Path("hub"))


@asynccontextmanager
async def losing_first(server: NatsServer, subject: str) -> AsyncIterator[tuple[Client, list[Msg]]]:
    """Have a service whose first answer gets lost, as through a cluster that knows nobody yet."""
    client = await patient.connect(server.url)
    asked: list[Msg] = []

    async def answer(message: Msg) -> None:
        asked.append(message)
        if len(asked) > 1:
            await message.respond(b'{"number": %d}' % len(asked))

    await client.subscribe(subject, cb=answer)
    try:
        yield client, asked
    finally:
        await client.close()


async def test_what_only_reads_is_asked_again(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_ask, "_AGAIN_S", 0.05)
    async with losing_first(nats_server, "hub.get") as (client, asked):
        answer = await OPERATOR.ask(client, "get", {"device": "VID-001"}, reads=True)
    assert answer["number"] >= 2
    assert {message.data for message in asked} == {b'{"device": "VID-001"}'}


async def test_a_question_that_takes_long_is_not_refused_for_having_been_asked_again(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one person only so many are answered at once, and the first answer is believed."""
    monkeypatch.setattr(_ask, "_TIMEOUT_S", _ask._TIMEOUT_S / 50)
    monkeypatch.setattr(_ask, "_AGAIN_S", _ask._AGAIN_S / 50)
    client, asked = await patient.connect(nats_server.url), list[Msg]()

    async def take_long(message: Msg) -> None:
        asked.append(message)

    try:
        await client.subscribe("hub.events", cb=take_long)
        with pytest.raises(HubError, match="does not answer: TimeoutError"):
            await OPERATOR.ask(client, "events", {}, reads=True)
        await until(lambda: bool(asked))
        assert len(asked) <= OF_ONE_MAX
    finally:
        await client.close()


async def test_what_changes_something_is_asked_once(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_ask, "_AGAIN_S", 0.05)
    monkeypatch.setattr(_ask, "_TIMEOUT_S", 0.5)
    async with losing_first(nats_server, "hub.set") as (client, asked):
        with pytest.raises(HubError, match="does not answer: TimeoutError"):
            await OPERATOR.ask(client, "set", {})
        await until(lambda: bool(asked))
        assert len(asked) == 1
        monkeypatch.setattr(_ask, "_TIMEOUT_S", 60.0)
        with pytest.raises(HubError, match=r"does not answer: .*NoResponders"):
            await OPERATOR.ask(client, "tree", {}, reads=True)


async def test_a_command_is_published_again_under_its_id(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_ACKNOWLEDGED_S", 0.2)
    subject = "fleet.prod.veh.VID-001.cmd.lock"
    async with losing_first(nats_server, subject) as (client, asked):
        await command._publish(client, subject, b'{"id": "a"}')
    assert len(asked) >= 2
    assert {message.data for message in asked} == {b'{"id": "a"}'}


async def test_servers_are_asked_again_where_none_answers(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fellow_servers, "_WAIT_S", 0.05)
    monkeypatch.setattr(fellow_servers, "_TRIES", 1000)
    async with losing_first(nats_server, "who") as (client, _):
        [answer] = await fellow_servers.ask_each(client, "who", b"{}", 1)
        assert json.loads(answer)["number"] >= 2


async def test_a_server_that_stands_still_is_waited_for_longer_than_one_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_ATTEMPT_S", 0.2)
    monkeypatch.setattr(connection, "_CONNECT_TIMEOUT_S", 0.3)
    monkeypatch.setattr(connection, "_SILENT_S_MAX", 120.0)
    hub = KeyedServer(tmp_path / "hub")
    hub.server.start()
    try:
        login = Login(creds=str(hub.creds("anna")))
        async with ShapedRelay("127.0.0.1", hub.server.port) as link:
            link.fall_silent()
            task = asyncio.create_task(connection.connect(f"nats://127.0.0.1:{link.port}", login))
            await until(lambda: link.accepted > 3 or task.done())
            link.flow_again()
            await (await task).close()
    finally:
        hub.server.stop()

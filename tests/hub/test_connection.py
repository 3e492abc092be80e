"""What whoever may publish anything could do to a connection of the hub, by bytes that a server lets through."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING

import pytest
from nats.aio.transport import TcpTransport
from nats.errors import UnexpectedEOF

from backhaul_codec.protocol.credentials import Credentials
from backhaul_hub.config import Login
from backhaul_hub.errors import HubError
from backhaul_hub.nats.connection import connect, heard
from backhaul_hub.nats.jwt import user_jwt
from backhaul_hub.nats.nkey import new_key
from tests.support.moody_server import MoodyServer
from tests.support.raw_publish import publish_raw
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from tests.support.nats_server import NatsServer

pytestmark = pytest.mark.nats

# The server looks at their length alone.
BROKEN_HEADERS = (
    b"N",
    b"NATS/1.0",
    b"NATS/1.0 \xff\xff\xff\r\n\r\n",
    b"NATS/1.0 204 \xff\r\n\r\n",
    "NATS/1.0 \N{SUPERSCRIPT TWO}\N{SUPERSCRIPT TWO}\r\n\r\n".encode(),
    b"NATS/1.0\r\n\xff: a\r\nb: \xff\r\n\r\n",
)


@pytest.fixture
def login(tmp_path: Path) -> Login:
    account, user = new_key("account"), new_key("user")
    jwt = user_jwt("control", user.public, account, account.public, now_s=0)
    creds = tmp_path / "control.creds"
    creds.write_text(Credentials(user.seed, user.public, jwt, 0).text())
    return Login(creds=str(creds))


@pytest.fixture
async def client(nats_server: NatsServer, login: Login) -> AsyncIterator[Client]:
    client = await connect(nats_server.url, login)
    yield client
    await client.close()


def with_headers(subject: bytes, headers: bytes) -> bytes:
    return b"HPUB %s %d %d\r\n%shi\r\n" % (subject, len(headers), len(headers) + 2, headers)


class Heard:
    """What came, in its order, and by which subscription."""

    def __init__(self) -> None:
        self.by: list[tuple[str, str, str]] = []

    async def listen(self, client: Client, *subjects: str) -> None:
        for subject in subjects:
            await client.subscribe(subject, cb=self._noting(subject))
        await heard(client)

    def _noting(self, at: str) -> Callable[[Msg], Awaitable[None]]:
        async def note(message: Msg) -> None:
            self.by.append((at, message.subject, message.reply))

        return note

    async def all_of(self, count: int) -> None:
        await until(lambda: len(self.by) == count, f"{count} messages heard")


@pytest.mark.parametrize(
    ("line", "subject", "reply"),
    [
        (b"PUB ask.\xff 2\r\nhi\r\n", "ask.\ufffd", ""),
        (b"PUB ask.x \xff 2\r\nhi\r\n", "ask.x", "\ufffd"),
        (b"PUB ask.x r\x0bs 2\r\nhi\r\n", "ask.x", "r\x0bs"),
        *((with_headers(b"ask.x", headers), "ask.x", "") for headers in BROKEN_HEADERS),
    ],
)
async def test_nobody_makes_the_hub_deaf(
    client: Client, nats_server: NatsServer, line: bytes, subject: str, reply: str
) -> None:
    found = Heard()
    await found.listen(client, "ask.>")
    await publish_raw(nats_server.port, line, b"PUB ask.next 2\r\nhi\r\n")
    await found.all_of(2)
    assert found.by == [("ask.>", subject, reply), ("ask.>", "ask.next", "")]


@pytest.mark.parametrize("split", [b"\x0b", b"\x0c"])
async def test_nobody_is_heard_where_the_server_does_not_let_them(
    client: Client, nats_server: NatsServer, split: bytes
) -> None:
    found = Heard()
    await found.listen(client, "ask.>", "hub.stop")
    [stop] = [number for number, each in client._subs.items() if each.subject == "hub.stop"]
    subject = b"ask.x%b%d" % (split, stop)
    await publish_raw(nats_server.port, b"PUB " + subject + b" 2\r\nhi\r\n")
    await found.all_of(1)
    assert found.by == [("ask.>", subject.decode(), "")]


async def test_a_message_with_an_empty_reply_is_heard(client: Client) -> None:
    """Servers send such of their own, as answers over the system account."""
    found = Heard()
    await found.listen(client, "ask.>")
    [ask] = [number for number, each in client._subs.items() if each.subject == "ask.>"]
    await client._ps.parse(
        b"MSG ask.x %d  2\r\nhi\r\nHMSG ask.y %d  12 14\r\nNATS/1.0\r\n\r\nhi\r\n" % (ask, ask)
    )
    await found.all_of(2)
    assert found.by == [("ask.>", "ask.x", ""), ("ask.>", "ask.y", "")]


async def test_a_refused_connection_leaves_no_socket_open(
    login: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is given up while the client closes what was refused."""
    monkeypatch.setattr("backhaul_hub.nats.connection._CONNECT_TIMEOUT_S", 0.0)
    async with MoodyServer().listening() as server:
        server.lets_in = False
        gc.disable()  # which would close it, some time
        try:
            with pytest.raises(HubError, match="Authorization Violation"):
                await connect(server.url, login)
            await until(lambda: not server.there, "each socket closed")
        finally:
            gc.enable()


async def test_a_connection_cut_short_while_it_is_made_leaves_no_socket_open(login: Login) -> None:
    async with MoodyServer().listening() as server:
        server.silent = True
        making = asyncio.create_task(connect(server.url, login))
        await until(lambda: bool(server.there), "an attempt is under way")
        making.cancel()
        with pytest.raises(asyncio.CancelledError):
            await making
        await until(lambda: not server.there, "its socket closed")


async def test_a_close_that_is_cut_short_leaves_no_socket_open(login: Login) -> None:
    async with MoodyServer().listening() as server:
        client = await connect(server.url, login)
        closing = asyncio.create_task(client.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await until(lambda: not server.there, "its socket closed")


async def test_whoever_closes_as_a_connection_is_lost_is_not_told_that_he_was_cancelled(
    client: Client,
) -> None:
    await client._process_op_err(UnexpectedEOF())
    await asyncio.sleep(0)  # what connects again waits for the end of the socket
    await client.close()
    assert client.is_closed


async def test_a_connection_is_closed_although_its_server_is_gone(client: Client) -> None:
    assert isinstance(client._transport, TcpTransport)
    assert client._transport._io_writer is not None
    client._transport._io_writer.transport.abort()
    await client.publish("x", b"never written")
    await client.close()
    assert client.is_closed


async def test_a_connection_made_again_leaves_no_socket_of_its_attempts_open(login: Login) -> None:
    async with MoodyServer().listening() as server:
        client = await connect(server.url, login)
        gc.disable()
        try:
            server.lets_in = False
            server.hang_up()
            await until(lambda: server.came >= 3, "two attempts refused")
            server.lets_in = True
            await until(lambda: client.is_connected, "connected again")
            await until(lambda: len(server.there) == 1, "the sockets of attempts closed")
        finally:
            gc.enable()
            await client.close()

"""Links through toxiproxy do what they are told: each toxic is seen from both ends."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from tests.chaos import link as toxics
from tests.chaos.link import NoToxiproxyError, ProxyServer, server_binary
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.chaos.link import Link

pytestmark = [pytest.mark.nats, pytest.mark.chaos]
ALL = b"0123456789" * 300


class Echo:
    """A server that sends back what it gets, and remembers how much that was."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.got_bytes = 0
        self.ended = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while chunk := await reader.read(65_536):
                self.got_bytes += len(chunk)
                writer.write(chunk)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            self.ended += 1
            writer.close()

    async def call(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.link.port)

    async def echoes(self) -> None:
        """Assert that what is sent comes back whole."""
        reader, writer = await self.call()
        writer.write(ALL)
        async with asyncio.timeout(60):
            assert await reader.readexactly(len(ALL)) == ALL
        writer.close()


@asynccontextmanager
async def echo(proxies: ProxyServer) -> AsyncIterator[Echo]:
    """Serve behind a link."""
    found: list[Echo] = []
    server = await asyncio.start_server(
        lambda reader, writer: found[0].serve(reader, writer), "127.0.0.1", 0
    )
    found.append(Echo(await proxies.link("echo", server.sockets[0].getsockname()[1])))
    async with server:
        yield found[0]


async def ended(reader: asyncio.StreamReader) -> bytes:
    """Wait for the end of a connection, whatever it is; return what came before."""
    try:
        async with asyncio.timeout(60):
            return await reader.read()
    except ConnectionError:
        return b""


async def test_a_cut_link_ends_what_is_open_and_refuses_until_it_is_healed(
    proxies: ProxyServer,
) -> None:
    async with echo(proxies) as far:
        reader, writer = await far.call()
        await far.link.cut()
        assert await ended(reader) == b""
        writer.close()
        with pytest.raises(OSError, match=r"refused|Connect call failed"):
            await far.call()
        await far.link.heal()
        await far.echoes()


async def test_a_half_open_link_swallows_what_is_sent_and_keeps_the_connection(
    proxies: ProxyServer,
) -> None:
    async with echo(proxies) as far:
        reader, writer = await far.call()
        await far.link.spoil(toxics.HALF_OPEN)
        writer.write(ALL)
        await writer.drain()
        rest = asyncio.create_task(ended(reader))
        done, _ = await asyncio.wait([rest], timeout=0.2)
        assert not done, "the connection was ended"
        await far.link.heal()
        assert await rest == b""
        assert far.got_bytes == 0
        writer.close()
        await far.echoes()


async def test_a_torn_link_ends_in_mid_message(proxies: ProxyServer) -> None:
    async with echo(proxies) as far:
        await far.link.spoil(toxics.torn(333))
        reader, writer = await far.call()
        writer.write(ALL)
        await ended(reader)
        await until(lambda: far.ended == 1)
        assert far.got_bytes == 333
        writer.close()
        await far.link.heal()
        await far.echoes()


async def test_a_reset_link_takes_connections_and_ends_them(proxies: ProxyServer) -> None:
    async with echo(proxies) as far:
        await far.link.spoil(toxics.RESET)
        reader, writer = await far.call()
        writer.write(ALL)
        assert await ended(reader) == b""
        writer.close()
        await far.link.heal()
        await far.echoes()


@pytest.mark.parametrize(
    ("toxic", "least_s"),
    [(toxics.LATE, 0.1), (toxics.KBITS_100, 0.2), (toxics.SLICED, 0.05)],
    ids=["late", "narrow", "sliced"],
)
async def test_a_poor_link_takes_its_time_and_changes_no_byte(
    proxies: ProxyServer, toxic: toxics.Toxic, least_s: float
) -> None:
    async with echo(proxies) as far:
        await far.link.spoil(toxic)
        clock = asyncio.get_running_loop()
        begin_s = clock.time()
        await far.echoes()
        assert clock.time() - begin_s > least_s
        await far.link.heal()
        await far.echoes()


def test_without_a_server_it_is_said_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tests.chaos.link._BUILT", tmp_path / "none")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoToxiproxyError, match="make tools"):
        server_binary()

"""nats-py's client as it is mended here, at a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backhaul_runtime.patched_client import PatchedClient

if TYPE_CHECKING:
    from tests.support.nats_server import NatsServer

pytestmark = pytest.mark.nats


async def test_who_has_flushed_is_heard_by_the_server(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, written = PatchedClient(), b""
    await client.connect(nats_server.url)
    transport = client._transport
    assert transport is not None
    write, writelines = transport.write, transport.writelines

    def note(data: bytes) -> None:
        nonlocal written
        written += data
        write(data)

    def note_lines(lines: list[bytes]) -> None:
        nonlocal written
        written += b"".join(lines)
        writelines(lines)

    monkeypatch.setattr(transport, "write", note)
    monkeypatch.setattr(transport, "writelines", note_lines)
    try:
        await client.subscribe("somewhere")
        await client.flush()
        # A server answers pings in their order, so the last one answered says what it has read.
        assert written.rindex(b"PING") > written.index(b"SUB somewhere")
        assert not client._pongs
    finally:
        await client.close()

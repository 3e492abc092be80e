"""What waits to be told is bounded by its bytes, too: listeners get the newest."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from backhaul_hub.broadcast import points as rebroadcast
from backhaul_hub.broadcast.points import Rebroadcast, Told
from tests.support.waiting import until

if TYPE_CHECKING:
    import pytest
    from nats.aio.client import Client


class Listener:
    is_connected = True

    def __init__(self) -> None:
        self.heard: list[bytes] = []

    async def publish(self, _: str, payload: bytes) -> None:
        self.heard.append(payload)


async def test_the_oldest_goes_where_more_bytes_wait_than_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rebroadcast, "WAITING_BYTES_MAX", 10)
    listener = Listener()
    telling = Rebroadcast(cast("Client", listener))
    telling.tell(Told(("a",), payload) for payload in (b"1" * 6, b"2" * 6, b"3" * 4))
    assert telling.dropped == 1
    running = asyncio.create_task(telling.run())
    await until(lambda: telling.published == 2)
    assert listener.heard == [b"2" * 6, b"3" * 4]
    telling.tell([Told(("a",), b"4" * 10)])
    await until(lambda: telling.published == 3)
    assert telling.dropped == 1, "what was told takes no room"
    running.cancel()
    await asyncio.wait([running])


async def test_what_is_dropped_while_one_is_published_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A connection whose buffer is full has others take turns in the midst of publishing."""
    monkeypatch.setattr(rebroadcast, "WAITING_BYTES_MAX", 10)

    class Slow(Listener):
        async def publish(self, subject: str, payload: bytes) -> None:
            await super().publish(subject, payload)
            if payload == b"1":
                telling.tell([Told(("a",), b"5" * 10)])

    listener = Slow()
    telling = Rebroadcast(cast("Client", listener))
    telling.tell(Told(("a",), payload) for payload in (b"1", b"2", b"3", b"4"))
    running = asyncio.create_task(telling.run())
    await until(lambda: running.done() or telling.published == 2)
    assert not running.done()
    assert listener.heard == [b"1", b"5" * 10]
    assert telling.dropped == 3
    running.cancel()
    await asyncio.wait([running])

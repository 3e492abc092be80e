"""What waits to be told is bounded by its bytes, too: listeners get the newest."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, cast

from backhaul_codec.state.merge import Head, HeadKey
from backhaul_codec.subjects import encode_token
from backhaul_hub.broadcast import points as rebroadcast
from backhaul_hub.broadcast.points import Rebroadcast, Told, told_reading
from backhaul_hub.device import FLEET
from backhaul_hub.sync.newest_readings import DeviceSeries, NewReading, Reading, point_json
from backhaul_hub.sync.tree import address_of
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest
    from nats.aio.client import Client


class Listener:
    is_connected = True
    max_payload = 1 << 20

    def __init__(self) -> None:
        self.heard: list[bytes] = []

    async def publish_many(self, messages: Iterable[tuple[str, bytes, bytes]]) -> None:
        self.heard += [payload for _, _, payload in messages]


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
    monkeypatch.setattr(rebroadcast, "_AT_ONCE", 1)

    class Slow(Listener):
        async def publish_many(self, messages: Iterable[tuple[str, bytes, bytes]]) -> None:
            await super().publish_many(messages)
            if self.heard == [b"1"]:
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


async def test_a_payload_that_no_server_takes_keeps_no_other_from_being_told() -> None:
    listener = Listener()
    telling = Rebroadcast(cast("Client", listener))
    telling.tell(Told(("a", "b"), payload) for payload in (b"1", b"2" * (2 << 20), b"3"))
    running = asyncio.create_task(telling.run())
    await until(lambda: telling.published == 4)
    assert listener.heard == [b"1", b"1", b"3", b"3"]
    assert telling.dropped == 1
    running.cancel()
    await asyncio.wait([running])


def test_a_reading_is_told_as_any_other_point() -> None:
    for device, node in (
        ("VID-1", "battery"), ("VID-1", "VID-1"), ("VID-1", ""), ("VID-1", "links/\u00fc.1 %"), (FLEET, "depot/1"),
    ):  # fmt: skip
        for type_, key, value in (("soc", "", 81.5), ("a b", "k.1", 7), ("on", "", "\u00e4")):
            reading = NewReading(
                device, DeviceSeries(node, type_, key), Reading(9, value), "synced"
            )
            subjects, payload = told_reading(reading, ("one", "two"))
            tokens = map(encode_token, (address_of(device, node), type_, key))
            end = ".".join(tokens)
            assert subjects == (f"up.one.{end}", f"up.two.{end}")
            point = point_json(device, HeadKey("", node, type_, key), Head(9, "", value))
            assert list(json.loads(payload).items()) == list(point.items())

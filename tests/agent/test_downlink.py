"""The reader of IN: in order, once, garbage passed over, over restarts and faults."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.commit.writer import Writer
from backhaul_agent.config import Config, DeviceConfig
from backhaul_agent.downlink.downlink import Downlink
from backhaul_agent.errors import JetStreamError
from backhaul_agent.leaf.connection import requester
from backhaul_agent.leaf.jetstream import JetStream
from backhaul_agent.ledger.ledger import Ledger
from backhaul_agent.uplink.resend import read_ask
from backhaul_runtime.jetstream import StreamMessage
from tests.agent.ledgers import FailingDisk
from tests.support.agent_clock import FakeClock
from tests.support.rig import patient
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.aio.client import Client

    from backhaul_agent.ledger.rows import Inbound, Inward
    from tests.support.nats_server import NatsServer

pytestmark = pytest.mark.nats
CONFIG = Config(device=DeviceConfig(id="VID-001", token="tok"))
STREAM = {
    "name": "IN",
    "subjects": ["s.>", "p.>"],
    "max_msgs_per_subject": 1,
    "allow_direct": True,
    "republish": {"src": ">", "dest": "agent.in.>", "headers_only": True},
}


class Reader:
    """A downlink on a real ledger and a real stream, and what its handlers were given."""

    def __init__(self, client: Client, downlink: Downlink, ledger: Ledger, disk: Any) -> None:
        self.client = client
        self.downlink = downlink
        self.ledger = ledger
        self.disk = disk
        self.seen: list[tuple[str, bytes]] = []
        self.remembered: list[bytes] = []
        downlink.register("s.note", self.note)
        downlink.register("s.note.loud", self.loud)
        downlink.register("s.word", self.word, in_memory=True)

    def note(self, message: Inbound, changes: Inward) -> None:
        if message.data == b"garbage":
            raise ValueError("garbage it is")
        self.seen.append((".".join(message.tokens), message.data))
        changes.meta["count"] = int(self.ledger.meta.get("count", 0)) + len(changes.meta) + 1

    def loud(self, message: Inbound, _: Inward) -> None:
        self.seen.append(("LOUD", message.data))

    def word(self, message: Inbound, _: Inward) -> None:
        self.remembered.append(message.data)

    async def api(self, request: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        data = json.dumps(body or {}).encode()
        answer = await self.client.request(f"$JS.API.{request}", data, timeout=30)
        return json.loads(answer.data)  # type: ignore[no-any-return]

    async def put(self, subject: str, data: bytes = b"x") -> None:
        answer = json.loads((await self.client.request(subject, data, timeout=30)).data)
        assert answer["seq"]

    async def until_read(self, seq: int) -> None:
        await until(
            lambda: json.loads(str(self.ledger.meta.get("in_position", "[0,0,0]")))[2] == seq
        )


async def make_stream(server: NatsServer, *subjects: str) -> None:
    client = await patient.connect(server.url)
    await client.request("$JS.API.STREAM.CREATE.IN", json.dumps(STREAM).encode(), timeout=30)
    for subject in subjects:
        await client.request(subject, subject[-1:].encode(), timeout=30)
    await client.close()


@asynccontextmanager
async def reader(
    path: Path, server: NatsServer, *, api: type[JetStream] = JetStream
) -> AsyncIterator[Reader]:
    disk = FailingDisk()
    ledger = await Ledger.open(
        path / "ledger.db", device="VID-001", bytes_max=1 << 26, epoch=lambda: 42, opener=disk
    )
    writer = Writer(ledger, CONFIG, FakeClock(), on_commit=lambda: None)
    client = await patient.connect(server.url)
    made = Reader(client, Downlink(CONFIG, ledger, writer), ledger, disk)
    tasks = [
        asyncio.create_task(writer.run()),
        asyncio.create_task(made.downlink.run(client, api(requester(client)))),
    ]
    try:
        yield made
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await client.close()
        await ledger.close()


@pytest.fixture(autouse=True)
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backhaul_agent.downlink.reader.POLL_S", 0.05)


async def test_each_message_is_handed_over_once_in_order(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with reader(tmp_path, nats_server) as it:
        await it.api("STREAM.CREATE.IN", STREAM)
        await it.put("s.note.a", b"1")
        await it.put("s.note.b", b"2")
        await it.put("s.note.loud", b"3")
        await it.put("s.unheard-of", b"4")
        await it.until_read(4)
        assert it.seen == [("s.note.a", b"1"), ("s.note.b", b"2"), ("LOUD", b"3")]
    async with reader(tmp_path, nats_server) as it:
        await it.put("s.note.a", b"5")
        await it.until_read(5)
        assert it.seen == [("s.note.a", b"5")]


async def test_what_came_beside_is_passed_over_once_it_comes_by_the_stream(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with reader(tmp_path, nats_server) as it:
        await it.api("STREAM.CREATE.IN", STREAM)
        beside = [
            ("s.note.a", b"1"),
            ("s.note.b", b"old"),
            ("s.word", b"2"),
            ("s.note", b"garbage"),
        ]
        await it.downlink.take_beside([StreamMessage(0, *each) for each in beside])
        await it.put("s.note.a", b"1")
        await it.put("s.note.b", b"new")
        await it.put("s.word", b"2")
        # The stream keeps the newest of a subject alone.
        await it.until_read(3)
        await it.put("s.note.a", b"1")
        await it.until_read(4)
        assert it.seen == [
            ("s.note.a", b"1"), ("s.note.b", b"old"), ("s.note.b", b"new"), ("s.note.a", b"1")
        ]  # fmt: skip
        assert it.remembered == [b"2"]
        assert it.downlink.news == 4


async def test_what_came_beside_waits_for_the_disk_and_the_position_after_it(
    tmp_path: Path, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backhaul_agent.commit.commit_loop.RETRY_S", 0.0)
    async with reader(tmp_path, nats_server) as it:
        await it.api("STREAM.CREATE.IN", STREAM)
        it.disk.error = sqlite3.OperationalError("database or disk is full")
        taking = asyncio.create_task(it.downlink.take_beside([StreamMessage(0, "s.note.a", b"1")]))
        await it.put("s.note.a", b"1")
        await until(lambda: it.downlink.news == 1)
        assert "count" not in it.ledger.meta
        assert "in_position" not in it.ledger.meta
        it.disk.error = None
        await it.until_read(1)
        await taking
        assert it.ledger.meta["count"] == 1
        assert it.seen == [("s.note.a", b"1")]


async def test_news_wake_the_reader_without_a_poll(
    tmp_path: Path, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backhaul_agent.downlink.reader.POLL_S", 3600.0)
    await make_stream(nats_server, "s.note.1")
    async with reader(tmp_path, nats_server) as it:
        await it.until_read(1)
        await it.put("s.note.a", b"2")
        await it.until_read(2)


async def test_garbage_is_counted_and_passed_over(tmp_path: Path, nats_server: NatsServer) -> None:
    async with reader(tmp_path, nats_server) as it:
        await it.api("STREAM.CREATE.IN", STREAM)
        await it.put("s.note.a", b"garbage")
        await it.put("s.note.b", b"2")
        await it.until_read(2)
        assert it.seen == [("s.note.b", b"2")]
        await until(lambda: it.downlink.garbage == 1)


async def test_words_nested_too_deep_to_be_read_are_garbage(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    """Else the agent would end, and again at each start: IN still holds them."""

    def ask(message: Inbound, _: Inward) -> None:
        read_ask(message.data)

    async with reader(tmp_path, nats_server) as it:
        it.downlink.register("s.resend", ask)
        await it.api("STREAM.CREATE.IN", STREAM)
        await it.put("s.resend.bulk", b'{"more":' + b"[" * 100_000)
        await it.until_read(1)
        await until(lambda: it.downlink.garbage == 1)


async def test_what_a_handler_keeps_in_memory_comes_again_after_a_restart(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with reader(tmp_path, nats_server) as it:
        await it.api("STREAM.CREATE.IN", STREAM)
        for subject in ("s.word.a", "s.word.b", "s.note.a", "s.word.a"):
            await it.put(subject, subject.encode())
        await it.until_read(4)
    async with reader(tmp_path, nats_server) as it:
        await it.put("s.word.c", b"new")
        await it.until_read(5)
        assert it.remembered == [b"s.word.b", b"s.word.a", b"new"]
        assert it.seen == []


async def test_a_stream_made_anew_is_read_from_its_start(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with reader(tmp_path, nats_server) as it:
        await it.api("STREAM.CREATE.IN", STREAM)
        await it.put("s.note.a", b"1")
        await it.put("s.note.b", b"2")
        await it.until_read(2)
        await it.api("STREAM.DELETE.IN")
        await it.api("STREAM.CREATE.IN", STREAM)
        await it.put("s.note.c", b"3")
        await it.until_read(1)
        assert it.seen[2:] == [("s.note.c", b"3")]


async def test_a_full_disk_holds_the_position_back_and_passes(
    tmp_path: Path, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the messages changed and the position are one transaction: both or none."""
    monkeypatch.setattr("backhaul_agent.commit.commit_loop.RETRY_S", 0.0)
    async with reader(tmp_path, nats_server) as it:
        await it.api("STREAM.CREATE.IN", STREAM)
        it.disk.error = OSError(28, "No space left on device")
        await it.put("s.note.a", b"1")
        await until(lambda: bool(it.seen))
        assert "count" not in it.ledger.meta
        assert "in_position" not in it.ledger.meta
        it.disk.error = None
        await it.until_read(1)
        assert it.ledger.meta["count"] == 1
        assert len(it.seen) == 1


class Flaky(JetStream):
    """Fails once, at the third message asked for."""

    asked = 0

    async def message(self, stream: str, **query: int | str) -> Any:
        self.asked += 1
        if self.asked == 3:
            raise JetStreamError("STREAM.MSG.GET", 503, 0, "just now not")
        return await super().message(stream, **query)


async def test_it_is_at_the_end_once_all_that_has_come_is_committed(
    tmp_path: Path, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backhaul_agent.commit.commit_loop.RETRY_S", 0.0)
    await make_stream(nats_server, "s.note.1")
    async with reader(tmp_path, nats_server) as it:
        jetstream = JetStream(requester(it.client))

        async def at_end() -> None:
            async with asyncio.timeout(60):
                while True:
                    if await it.downlink.at_end(jetstream):
                        return
                    await asyncio.sleep(0.01)

        await it.until_read(1)
        await at_end()
        it.disk.error = sqlite3.OperationalError("database or disk is full")
        await it.put("s.note.a", b"2")
        await until(lambda: ("s.note.a", b"2") in it.seen)
        assert not await it.downlink.at_end(jetstream), "it is not committed"
        it.disk.error = None
        await at_end()
        assert await it.api("STREAM.MSG.DELETE.IN", {"seq": 2})
        await at_end()
        await it.api("STREAM.DELETE.IN")
        await it.api("STREAM.CREATE.IN", STREAM)
        await it.put("s.note.c", b"3")
        await it.until_read(1)
        await at_end()


async def test_a_fault_in_the_middle_of_a_batch_skips_nothing(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    await make_stream(nats_server, *(f"s.note.{name}" for name in "abcd"))
    async with reader(tmp_path, nats_server, api=Flaky) as it:
        await it.until_read(4)
        assert [data for _, data in it.seen] == [b"a", b"b", b"a", b"b", b"c", b"d"]
        assert it.ledger.meta["count"]


class Late(JetStream):
    """Says at the first look that there is no such stream: it is made right after."""

    asked = 0

    async def created_and_state(self, stream: str) -> tuple[str, dict[str, Any]]:
        self.asked += 1
        if self.asked == 1:
            raise JetStreamError("STREAM.INFO", 404, 10059, "stream not found")
        return await super().created_and_state(stream)


async def test_a_stream_made_right_after_the_look_at_it_is_read_once(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    await make_stream(nats_server, "s.note.a", "s.note.b")
    async with reader(tmp_path, nats_server, api=Late) as it:
        await it.until_read(2)
        assert it.ledger.meta["in_position"] != '["","",2,"",0]'
        await it.put("s.note.c", b"c")
        await it.until_read(3)
        assert [data for _, data in it.seen] == [b"a", b"b", b"c"]

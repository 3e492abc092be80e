"""A lane between a real ledger and a stream in memory."""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from nats.errors import TimeoutError as NatsTimeoutError

from backhaul_agent.commit.contents import Frame
from backhaul_agent.commit.queues import QueuedPublish
from backhaul_agent.commit.writer import Writer
from backhaul_agent.config import Config, DeviceConfig
from backhaul_agent.leaf.jetstream import JetStream
from backhaul_agent.ledger.ledger import Ledger
from backhaul_agent.uplink.confirmations import Claim
from backhaul_agent.uplink.lane import Lane
from backhaul_codec import Point, encode_frame, peek
from tests.support.agent_clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path


CONFIG = Config(device=DeviceConfig(id="VID-001", token="tok"))


class Append(NamedTuple):
    data: bytes
    reply: str
    expected: str | None
    headers: dict[str, str]


class Leaf:
    """One stream. Honours the expected last sequence if, and only if, it is told one."""

    def __init__(self) -> None:
        self.stored: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.created = "2026-01-01T00:00:00Z"
        self.purged = 0  # sequences that are gone, from the first on
        self.refused = 0
        self.purges = 0
        self.down = False
        self.acked = 0  # up to where the hub has taken it
        self.no_room = 0  # appends that are refused for want of room, from now on

    @property
    def last_seq(self) -> int:
        return self.purged + len(self.stored)

    def append(self, append: Append) -> bytes:
        if self.no_room:
            self.no_room -= 1
            error = {"code": 503, "err_code": 10023, "description": "insufficient resources"}
            return json.dumps({"error": error}).encode()
        if append.expected is not None and int(append.expected) != self.last_seq:
            self.refused += 1
            text = f"wrong last sequence: {self.last_seq}"
            return json.dumps({"error": {"code": 400, "description": text}}).encode()
        del self.headers[len(self.stored) :]
        self.headers += [{} for _ in range(len(self.stored) - len(self.headers))]
        self.stored.append(append.data)
        self.headers.append(append.headers)
        return json.dumps({"stream": "OUT_bulk", "seq": self.last_seq}).encode()

    async def request(self, subject: str, payload: bytes) -> bytes:
        await asyncio.sleep(0)
        if self.down:
            raise NatsTimeoutError
        answer: dict[str, Any] = {
            "config": {},
            "ack_floor": {"stream_seq": self.acked},
            "created": self.created,
            "state": {
                "messages": len(self.stored),
                "first_seq": self.purged + 1,
                "last_seq": self.last_seq,
            },
        }  # fmt: skip
        if "MSG.GET" in subject:
            seq = json.loads(payload)["seq"]
            data = base64.b64encode(self.stored[seq - 1 - self.purged]).decode()
            kept = self.headers[seq - 1 - self.purged : seq - self.purged]
            lines = [f"{name}: {value}" for each in kept for name, value in each.items()]
            raw = "\r\n".join(["NATS/1.0", *lines, "", ""]).encode()
            answer = {
                "message": {
                    "seq": seq, "subject": "f.n", "data": data,
                    "hdrs": base64.b64encode(raw).decode(),
                },
            }  # fmt: skip
        if "PURGE" in subject:
            self.purges += 1
            self.stored.clear()
            self.headers.clear()
            self.purged = json.loads(payload)["seq"] - 1
        return json.dumps(answer).encode()

    def has(self, seq: int) -> bool:
        """Whether all up to this seq was appended, and nothing else."""
        return self.seqs == list(range(1, seq + 1))

    @property
    def seqs(self) -> list[int]:
        return [peek(data).seq for data in self.stored if not data.startswith(b"a local")]


class Message(NamedTuple):
    subject: str
    data: bytes


class Connection:
    """Stands in for a NATS client. ``hold`` keeps appends on their way; `release` lets them in."""

    is_closed = False

    def __init__(self, leaf: Leaf, *, hold: bool = False, lose_answers: bool = False) -> None:
        self.held: list[Append] = []
        self.pushed: list[tuple[str, bytes]] = []
        self._leaf = leaf
        self._hold = hold
        self._lose_answers = lose_answers
        self._callback: Callable[[Any], Awaitable[None]] | None = None

    def new_inbox(self) -> str:
        return "_INBOX.x"

    async def subscribe(self, subject: str, cb: Callable[[Any], Awaitable[None]]) -> Connection:
        self._callback = cb
        return self

    async def unsubscribe(self) -> None:
        self._callback = None

    async def publish(
        self,
        subject: str,
        data: bytes,
        *,
        reply: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        if headers is None:
            self.pushed.append((subject, data))
            return
        expected = headers.pop("Nats-Expected-Last-Sequence", None)
        self.held.append(Append(data, reply, expected, headers))
        if not self._hold:
            await self.release()

    async def release(self) -> None:
        held, self.held = self.held, []
        for append in held:
            answer = self._leaf.append(append)
            if self._callback is not None and not self._lose_answers:
                await self._callback(Message(append.reply, answer))


class Rig:
    """A ledger with a running writer, one bulk lane, and a leaf."""

    def __init__(self, ledger: Ledger, writer: Writer, lane: Lane, clock: FakeClock) -> None:
        self.ledger = ledger
        self.writer = writer
        self.lane = lane
        self.clock = clock
        self.leaf = Leaf()

    async def commit(self, count: int, *, boot: int = 0) -> None:
        done = asyncio.Semaphore(0)
        for number in range(count):
            body = encode_frame([Point("n", "t", number, float(number))], epoch=0, seq=0)
            content = Frame("n", body, 1, (number, number), boot)
            self.writer.submit(QueuedPublish(content, 10, True, lambda *_: done.release()))
        for _ in range(count):
            await done.acquire()

    async def confirm(self, seq: int) -> None:
        """Have the hub say that it holds this ledger's own messages up to a seq."""
        own = await self.ledger.hash_at(self.ledger.lanes["bulk"], seq)
        self.lane.on_watermark(42, Claim(seq, own))

    @asynccontextmanager
    async def connected(
        self, connection: Connection, lane: Lane | None = None
    ) -> AsyncIterator[None]:
        run = (lane or self.lane).run(connection, JetStream(self.leaf.request))  # type: ignore[arg-type]
        task = asyncio.create_task(run)
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def reopened(self) -> Lane:
        """Return a lane as a new process would make it, and have it told of commits."""
        lane = Lane("bulk", self.ledger, self.writer, CONFIG, self.clock)
        self.writer._on_commit = lane.on_commit
        return lane

    async def drained(self) -> None:
        await asyncio.wait_for(self.lane.drained(), 60)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    ledger = await Ledger.open(
        tmp_path / "ledger.db", device="VID-001", bytes_max=1 << 26, epoch=lambda: 42
    )
    lanes: list[Lane] = []
    clock = FakeClock()
    writer = Writer(ledger, CONFIG, clock, on_commit=lambda: lanes[0].on_commit())
    lanes.append(Lane("bulk", ledger, writer, CONFIG, clock))
    task = asyncio.create_task(writer.run())
    try:
        yield Rig(ledger, writer, lanes[0], clock)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await ledger.close()

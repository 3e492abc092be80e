"""A former epoch is compared with what the hub holds: when that may be, and what follows from it.

The leaf and the hub are scripted; the ledger is real. What becomes of each message: `test_reconcile.py`.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest

from backhaul_agent.commit.writer import Writer
from backhaul_agent.config import Config, DeviceConfig
from backhaul_agent.ledger.rows import Adopted, LedgerChanges, LedgerRow
from backhaul_agent.uplink import comparison
from backhaul_agent.uplink.comparison import Comparison
from backhaul_agent.uplink.confirmations import Confirmations
from backhaul_agent.uplink.resend import Work
from backhaul_codec import chain, decode, hash_of, peek
from backhaul_codec.protocol.words import SPARE, spare_of
from backhaul_codec.wire.envelope import NO_LINK
from tests.agent.ledgers import open_ledger, opening, outgoing
from tests.support.agent_clock import FakeClock
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from backhaul_agent.leaf.jetstream import JetStream
    from backhaul_agent.ledger.ledger import Ledger
    from backhaul_agent.uplink.lane import Lane

CONFIG = Config(device=DeviceConfig(id="VID-001", token="t"))
OTHERS = "0" * 12


class Bulk:
    """The lane whose former epoch, 42, is in doubt; at its leaf, whose OUT holds ten messages."""

    name, stream = "bulk", "OUT_bulk"

    def __init__(self, ledger: Ledger, writer: Writer) -> None:
        self.confirmations = Confirmations("bulk", ledger, writer)
        self.again: list[Work] = []
        self.taken = 10
        self.looked = 0

    def past(self, epoch: int) -> bool:
        return True

    def append_again(self, works: list[Work]) -> None:
        self.again += works

    async def created_and_state(self, _: str) -> tuple[str, dict[str, Any]]:
        self.looked += 1
        return "now", {"messages": 10, "first_seq": 1, "last_seq": 10}

    async def request(self, _: str) -> dict[str, Any]:
        return {"ack_floor": {"stream_seq": self.taken}}


class Scene:
    """A ledger with three messages in an epoch that is over."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.writer = Writer(ledger, CONFIG, FakeClock(), on_commit=lambda: None)
        self.bulk = Bulk(ledger, self.writer)
        lanes = [cast("Lane", self.bulk)]
        self.comparison = Comparison(ledger, self.writer, FakeClock(), lanes, "durable")
        self.bulk.confirmations.dispute(42, "a test")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        jetstream = cast("JetStream", self.bulk)
        tasks = [asyncio.create_task(self.comparison.run(jetstream))]
        tasks.append(asyncio.create_task(self.writer.run()))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def hashes(self) -> list[str | None]:
        rows = await self.ledger.read("bulk", 1, 9, 42)
        return [hash_of(row.subject, row.body).hex() for row in rows]

    async def words(self) -> list[object]:
        """Return what was said on live in the current epoch, but for its first word."""
        rows = await self.ledger.read("live", 2, 9)
        return [decode(row.body, node="", type="x").points[0].value for row in rows]

    async def answers(self, hashes: list[str | None]) -> None:
        """Have the hub answer the one question that there is."""
        await until(lambda: self.comparison.question is not None)
        assert self.comparison.question == ("bulk", 42, 1, 3)
        self.comparison.heard("bulk", 42, 1, hashes)


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setattr(comparison, "LOOK_S", 0.01)
    ledger = await open_ledger(tmp_path / "ledger.db")
    try:
        await ledger.commit(LedgerChanges([outgoing(size=10 + n) for n in range(3)]))
        await ledger.commit(LedgerChanges(opening=opening()))
        yield Scene(ledger)
    finally:
        await ledger.close()


async def test_nothing_is_compared_before_the_hub_has_taken_all_that_out_held(
    scene: Scene,
) -> None:
    scene.bulk.taken = 9
    async with scene.running():
        await until(lambda: scene.bulk.looked > 3 or scene.comparison.question is not None)
        assert scene.comparison.question is None
        scene.bulk.taken = 10
        await scene.answers(await scene.hashes())
        await until(lambda: not scene.bulk.confirmations.disputed)


async def test_what_the_hub_lacks_is_appended_again_and_settles_nothing(scene: Scene) -> None:
    confirmations = scene.bulk.confirmations
    async with scene.running():
        first, _, third = await scene.hashes()
        await scene.answers([first, None, third])
        await until(lambda: not confirmations.disputed)
        assert scene.bulk.again == [Work(42, 2, 2)]
        assert confirmations.compared == set()
        await scene.writer.all_written()
        assert scene.ledger.closed["bulk", 42].watermark == 0


async def test_what_another_has_the_place_of_is_moved_and_the_epoch_is_settled(
    scene: Scene,
) -> None:
    async with scene.running():
        first, second, _ = await scene.hashes()
        await scene.answers([first, second, OTHERS])
        await until(lambda: scene.bulk.confirmations.compared == {42})
        assert (scene.comparison.moved, scene.bulk.again) == (1, [])
        spare, last_seq = spare_of(42), scene.ledger.last_seq("bulk")
        assert last_seq == 0, "it is no new message"
        (there,) = await scene.ledger.read("bulk", 1, 9, spare)
        assert (there.seq, peek(there.body).link) == (3, NO_LINK)
        words = [json.loads(cast("Any", said).data) for said in await scene.words()]
        assert words == [
            {"lane": "bulk", "epoch": spare, "lo": 1, "hi": 2, "reason": SPARE},
            {"old": spare, "new": scene.ledger.epoch, "why": SPARE, "lanes": {"bulk": 3}},
        ]
        await until(lambda: scene.comparison.question == ("bulk", spare, 3, 3))
        scene.comparison.heard("bulk", spare, 3, [None])
        await until(lambda: scene.bulk.again == [Work(spare, 3, 3)])
        assert spare not in scene.bulk.confirmations.compared, (
            "the hub may hold another's there too"
        )
        await until(
            lambda: ("bulk", 42) not in scene.ledger.closed or scene.ledger.closed["bulk", 42].whole
        )


async def test_what_was_to_be_moved_as_the_link_fell_is_moved_once(scene: Scene) -> None:
    """The disk takes it only after the next connection has begun to compare."""
    jetstream = cast("JetStream", scene.bulk)
    first, second, _ = await scene.hashes()
    known = [first, second, OTHERS]

    async def answering() -> None:
        while not scene.bulk.confirmations.compared:
            if (asked := scene.comparison.question) is not None:
                scene.comparison.heard(*asked[:3], known[asked.lo - 1 : asked.hi])
            await asyncio.sleep(0.001)

    answers = asyncio.create_task(answering())
    comparing = asyncio.create_task(scene.comparison.run(jetstream))
    handed_in = scene.writer._deferred._owed.done
    await until(lambda: handed_in)  # to the writer, which does not run yet
    comparing.cancel()
    await asyncio.wait([comparing])
    comparing = asyncio.create_task(scene.comparison.run(jetstream))
    await until(lambda: len(handed_in) == 2)
    writing = asyncio.create_task(scene.writer.run())
    try:
        await asyncio.wait_for(answers, 5)
        there = await scene.ledger.read("bulk", 1, 9, spare_of(42))
        assert [row.seq for row in there] == [3]
    finally:
        for task in (comparing, writing):
            task.cancel()
        await asyncio.wait([comparing, writing])


async def test_an_epoch_that_is_forgotten_while_its_leaf_is_asked_ends_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another epoch began meanwhile, and the oldest were dropped."""
    request = scene.bulk.request

    async def slow(subject: str) -> dict[str, Any]:
        scene.ledger.closed.pop(("bulk", 42), None)
        return await request(subject)

    monkeypatch.setattr(scene.bulk, "request", slow)
    comparing = asyncio.create_task(scene.comparison.run(cast("JetStream", scene.bulk)))
    try:
        await until(lambda: comparing.done() or not scene.bulk.confirmations.disputed)
        assert not comparing.done()
    finally:
        comparing.cancel()
        await asyncio.wait([comparing])


async def test_what_waits_for_its_place_in_the_spare_epoch_settles_nothing(scene: Scene) -> None:
    """This ledger has had another message in that place, before it was put back."""
    other = chain(outgoing(size=99).body, epoch=spare_of(42), seq=3, link=NO_LINK)
    taken = Adopted("bulk", spare_of(42), [LedgerRow(3, "f.n", other)])
    await scene.ledger.commit(LedgerChanges(adopted=[taken]))
    async with scene.running():
        first, second, third = await scene.hashes()
        await scene.answers([first, second, OTHERS])
        await until(lambda: not scene.bulk.confirmations.disputed)
        assert scene.bulk.confirmations.compared == set()
        assert (await scene.hashes())[2] == third, "it stays until its place is settled"

"""Group commit: who waits is served at once and together, who does not is staged in time."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from backhaul_agent.commit.contents import Content, Frame, Points
from backhaul_agent.commit.participant import AT_ONCE_S, CommitParticipant, Draft
from backhaul_agent.commit.queues import QueuedPublish
from backhaul_agent.commit.writer import Writer
from backhaul_agent.errors import RefusedError
from backhaul_agent.ledger.ledger import Ledger
from backhaul_agent.ledger.rows import Inward, LedgerChanges, Quarantine
from backhaul_agent.ledger.system_events import event
from backhaul_codec import Opaque, Point, decode
from backhaul_codec.state.merge import Head, HeadKey
from backhaul_codec.wire.addressed import Addressed
from tests.agent.ledgers import FailingDisk
from tests.agent.writers import CONFIG, RunningClock
from tests.support.agent_clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from backhaul_agent.commit.heads import Changed


@dataclass
class Bench:
    """A writer on a real ledger, and what it answered."""

    writer: Writer
    ledger: Ledger
    disk: FailingDisk
    answers: list[tuple[int, str]] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    commits: int = 0

    def on_commit(self) -> None:
        self.commits += 1
        self.news.set()

    def submit(self, number: int, *, waits: bool, size: int = 100, live: bool = False) -> None:
        def answer(_: Content, refusal: RefusedError | None) -> None:
            self.answers.append((number, refusal.code if refusal else "kept"))
            self.news.set()

        point = Point(node="n", type="t", time=number, value=float(number))
        self.writer.submit(QueuedPublish(Points("n", [point], live), size, waits, answer))

    async def until(self, wanted: Any) -> None:
        async with asyncio.timeout(60):
            while not wanted():
                self.news.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.news.wait(), 0.01)

    async def points(self, lane: str = "bulk") -> list[float]:
        rows = await self.ledger.read(lane, 1, 1000)
        return [
            point.value  # type: ignore[misc]
            for row in rows
            for point in decode(row.body, node="n", type="t", key="").points
        ]


@asynccontextmanager
async def bench(
    path: Path, *, start: bool = True, clock: FakeClock | None = None, **options: Any
) -> AsyncIterator[Bench]:
    disk = FailingDisk()
    ledger = await Ledger.open(
        path / "ledger.db", device="VID-001", bytes_max=options.pop("bytes_max", 1 << 26),
        epoch=lambda: 42, opener=disk, **options,
    )  # fmt: skip
    made: list[Bench] = []
    writer = Writer(ledger, CONFIG, clock or RunningClock(), on_commit=lambda: made[0].on_commit())
    made.append(Bench(writer, ledger, disk))
    await writer.restore()
    task = asyncio.create_task(writer.run()) if start else None
    try:
        yield made[0]
    finally:
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await ledger.close()


async def test_waiting_publishers_share_commits(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        for number in range(10):
            it.submit(number, waits=True)
        await it.until(lambda: len(it.answers) == 10)
        assert it.answers == [(number, "kept") for number in range(10)]
        assert it.commits == 1
        assert await it.points() == [float(number) for number in range(10)]


async def test_kept_means_durable_before_it_means_framed(tmp_path: Path) -> None:
    clock = FakeClock()
    async with bench(tmp_path, clock=clock) as it:
        it.submit(1, waits=True)
        await it.until(lambda: it.answers)
        assert [row.points for row in await it.ledger.staged()] == [1]
        clock.advance(1)
        it.writer.wake()
        await it.until(lambda: it.ledger.lanes["bulk"].last_seq == 1)
        assert await it.ledger.staged() == []
        assert await it.points() == [1.0]


async def test_points_nobody_waits_for_are_staged_in_time(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        it.submit(1, waits=False)
        await it.until(lambda: it.commits)
        assert it.answers == [(1, "kept")]


async def test_live_points_are_messages_of_their_own(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        for number in range(3):
            it.submit(number, waits=True, live=True)
        await it.until(lambda: len(it.answers) == 3)
        assert await it.points("live") == [0.0, 1.0, 2.0]


async def test_staged_points_survive_a_restart_and_are_framed(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        it.submit(1, waits=True)
        await it.until(lambda: it.answers)
    async with bench(tmp_path) as it:
        await it.until(lambda: it.ledger.lanes["bulk"].last_seq == 1)
        assert await it.points() == [1.0]


async def test_a_damaged_staged_row_is_set_aside_and_told(tmp_path: Path) -> None:
    async with bench(tmp_path, clock=FakeClock()) as it:  # framed in its time, and that stands
        it.submit(1, waits=True)
        await it.until(lambda: it.answers)
        await it.ledger._db.execute("UPDATE staged SET body = x'00'")
    async with bench(tmp_path) as it:
        await it.until(lambda: it.ledger.lanes["live"].last_seq == 1)
        (row,) = await it.ledger.read("live", 1, 1)
        assert row.subject == "e.quarantined"
        (point,) = decode(row.body, node="", type="quarantined", key="").points
        assert isinstance(point.value, Opaque)
        assert msgspec.json.decode(point.value.data) == {
            "node": "n", "points": 1, "reason": "corrupt",
        }  # fmt: skip
        assert await it.ledger.staged() == []
        assert it.ledger.quarantined == 1


async def test_a_failing_disk_refuses_clearly_and_heals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backhaul_agent.commit.commit_loop.RETRY_S", 0.01)
    async with bench(tmp_path) as it:
        it.disk.error = sqlite3.OperationalError("database or disk is full")
        it.submit(1, waits=True)
        it.submit(2, waits=False)
        await it.until(lambda: len(it.answers) == 2)
        assert it.answers == [(1, "storage"), (2, "storage")]
        assert "disk is full" in it.writer.counters.last_error
        it.disk.error = None
        it.submit(3, waits=True)
        await it.until(lambda: len(it.answers) == 3)
        assert it.answers[-1] == (3, "kept")
        assert it.writer.counters.last_error == ""
        await it.until(lambda: it.ledger.lanes["bulk"].last_seq == 1)
        assert await it.points() == [3.0]


async def test_what_the_agent_owes_is_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backhaul_agent.commit.commit_loop.RETRY_S", 0.01)
    async with bench(tmp_path) as it:
        for number in range(5):
            it.submit(number, waits=True)
        await it.until(lambda: len(it.answers) == 5)
        it.disk.error = sqlite3.OperationalError("disk I/O error")
        it.writer.set_watermark("bulk", 1)
        done = asyncio.create_task(it.writer.set_aside([Quarantine("bulk", 1, "bad")], []))
        await it.until(lambda: it.writer.counters.commits_failed)
        it.disk.error = None
        async with asyncio.timeout(60):
            await done
        assert it.ledger.lanes["bulk"].watermark == 1
        assert await it.ledger.explained(it.ledger.lanes["bulk"], 1, 1) == {1}


async def test_what_comes_to_be_owed_during_a_failing_commit_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backhaul_agent.commit.commit_loop.RETRY_S", 0.01)
    async with bench(tmp_path) as it:
        for number in range(10):
            it.submit(number, waits=True)
        await it.until(lambda: len(it.answers) == 10)
        later: list[asyncio.Task[None]] = []

        def set_aside(seq: int, note: str) -> asyncio.Task[None]:
            rows, notes = [Quarantine("bulk", seq, "bad")], [event(note, {}, 0)]
            return asyncio.create_task(it.writer.set_aside(rows, notes))

        def during() -> None:
            it.disk.on_failure = lambda: None
            it.writer.set_watermark("bulk", 1)
            later.append(set_aside(2, "during"))

        it.disk.error, it.disk.on_failure = OSError(28, "No space left on device"), during
        first = set_aside(1, "before")
        await it.until(lambda: later)
        it.disk.error = None
        await asyncio.wait_for(asyncio.gather(first, later[0]), 60)
        subjects = [row.subject for row in await it.ledger.read("live", 1, 9)]
        assert sorted(subjects) == ["e.before", "e.during"]
        assert await it.ledger.explained(it.ledger.lanes["bulk"], 1, 2) == {1, 2}
        assert it.ledger.lanes["bulk"].watermark == 1


async def test_a_watermark_that_falls_back_while_a_higher_one_is_written_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what the ledger still has, and is news all the same: rows may be forgotten by the other."""
    async with bench(tmp_path, start=False) as it:
        commit = it.ledger.commit

        async def falls_meanwhile(changes: LedgerChanges) -> list[int]:
            monkeypatch.setattr(it.ledger, "commit", commit)
            it.writer.set_watermark("bulk", 0)
            return await commit(changes)

        monkeypatch.setattr(it.ledger, "commit", falls_meanwhile)
        it.writer.set_watermark("bulk", 1)
        await it.writer._commit(flush=False)
        assert it.ledger.lanes["bulk"].watermark == 1
        await it.writer._commit(flush=False)
        assert it.ledger.lanes["bulk"].watermark == 0


@pytest.mark.parametrize(("count", "size"), [(8, 100), (2, 16_400)], ids=["messages", "bytes"])
async def test_a_burst_nobody_waits_for_is_committed_once_there_is_half_of_what_may_wait(
    tmp_path: Path, count: int, size: int
) -> None:
    # On a clock that stands: else what waits is due by itself, twenty milliseconds later.
    async with bench(tmp_path, start=False, clock=FakeClock()) as it:
        for number in range(count):
            assert not it.writer._due()
            it.submit(number, waits=False, size=size)
        assert it.writer._due()


@pytest.mark.parametrize(("count", "size"), [(17, 100), (3, 30_000)], ids=["messages", "bytes"])
async def test_more_than_may_wait_is_busy(tmp_path: Path, count: int, size: int) -> None:
    async with bench(tmp_path, start=False) as it:
        for number in range(count - 1):
            it.submit(number, waits=True, size=size)
        with pytest.raises(RefusedError) as caught:
            it.submit(count, waits=True, size=size)
        assert caught.value.code == "busy"


async def test_a_full_ledger_refuses_until_the_hub_confirms(tmp_path: Path) -> None:
    async with bench(tmp_path, bytes_max=1 << 20, when_full="refuse") as it:
        await fill(it)
        with pytest.raises(RefusedError, match="when_full") as caught:
            it.submit(1, waits=True)
        assert caught.value.code == "ledger_full"
        it.writer.set_watermark("bulk", it.ledger.lanes["bulk"].last_seq)
        await it.until(lambda: not it.ledger.budget.full)
        it.submit(2, waits=True)
        await it.until(lambda: it.answers and it.answers[-1] == (2, "kept"))


async def fill(it: Bench) -> None:
    from backhaul_codec import encode_frame

    body = encode_frame(
        [Point(node="n", type="t", time=1, value=bytes(range(256)) * 100)], epoch=0, seq=0,
        compression="none",
    )  # fmt: skip
    while not it.ledger.budget.full:
        done = asyncio.Event()
        it.writer.submit(
            QueuedPublish(Frame("n", body, 1, (1, 1)), 100, True, lambda *_, d=done: d.set())
        )
        await done.wait()
        await asyncio.sleep(0)


async def test_stopping_frames_everything_and_refuses_the_rest(tmp_path: Path) -> None:
    async with bench(tmp_path, start=False) as it:
        it.submit(1, waits=False)
        it.writer.stop()
        with pytest.raises(RefusedError) as caught:
            it.submit(2, waits=True)
        assert caught.value.code == "stopping"
        await it.writer.run()
        assert it.answers == [(1, "kept")]
        assert await it.points() == [1.0]
        assert await it.ledger.staged() == []


async def test_state_becomes_a_head_and_survives_a_restart(tmp_path: Path) -> None:
    key = HeadKey("", "n", "t")
    async with bench(tmp_path) as it:
        told: list[Changed] = []
        it.writer.keeper.on_heads.append(told.extend)
        it.submit(1, waits=True, live=True)
        it.submit(2, waits=True)
        await it.until(lambda: len(it.answers) == 2)
        assert told == [(key, Head(1, "", 1.0))]
    async with bench(tmp_path) as it:
        assert dict(it.writer.keeper.heads) == {key: Head(1, "", 1.0)}


async def test_what_the_hub_wrote_is_merged_with_its_position_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backhaul_agent.commit.commit_loop.RETRY_S", 0.01)
    written = Point(node="n", type="t", time=7, value=7.0, origin="hub")
    async with bench(tmp_path) as it:
        it.disk.error = sqlite3.OperationalError("disk I/O error")
        inward = Inward(meta={"in_position": "here"}, received=[Addressed("", written)])
        durable: list[int] = []
        inward.on_durable.append(lambda: durable.append(len(it.writer.keeper.heads)))
        applying = asyncio.create_task(it.writer.apply(inward))
        it.submit(1, waits=True, live=True)
        await it.until(lambda: it.answers == [(1, "storage")])
        assert len(it.writer.keeper.heads) == 0
        assert "in_position" not in it.ledger.meta
        assert durable == []
        it.disk.error = None
        await applying
        assert durable == [1]
        assert it.writer.keeper.heads.get(HeadKey("", "n", "t")) == Head(7, "hub", 7.0)
    async with bench(tmp_path) as it:
        assert it.ledger.meta["in_position"] == "here"
        assert it.writer.keeper.heads.get(HeadKey("", "n", "t")) == Head(7, "hub", 7.0)
        assert it.writer.keeper.hub_ns == 7
        it.submit(8, waits=True, live=True)
        await it.until(lambda: it.answers)
        rows = await it.ledger.read("live", 1, 10)
        assert [row.subject for row in rows] == ["e.seen", "p.n.t.%"]


async def test_a_participant_is_told_of_its_commit_before_whoever_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backhaul_agent.commit.commit_loop.RETRY_S", 0.01)
    said: list[str] = []

    class Participant(CommitParticipant):
        owed = True

        def due_s(self) -> float | None:
            return AT_ONCE_S if self.owed else None

        def contribute(self, draft: Draft) -> None:
            said.append("contributed")
            self.owed = False
            draft.changes.meta["its"] = len(said)
            draft.on_durable.append(lambda: said.append("told"))

        def committed(self, draft: Draft) -> None:
            assert it.ledger.meta["its"] == len(said)
            said.append("committed")

        def put_back(self, refusal: RefusedError) -> None:
            self.owed = True
            said.append(refusal.code)
            it.disk.error = None

    async with bench(tmp_path, start=False) as it:
        it.writer._participants.append(Participant())
        it.disk.error = sqlite3.OperationalError("disk I/O error")
        running = asyncio.create_task(it.writer.run())
        await it.until(lambda: "told" in said)
        it.writer.stop()
        await running
        assert said[:5] == ["contributed", "storage", "contributed", "committed", "told"]

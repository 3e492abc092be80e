"""A full disk under the ledger: degraded by the rule, refused clearly, healed by itself."""

from __future__ import annotations

import asyncio
import errno
import sqlite3
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.commit.contents import ConfigWrite, Frame
from backhaul_agent.commit.queues import QueuedPublish
from backhaul_agent.commit.writer import Writer
from backhaul_agent.errors import LedgerStorageError, RefusedError, says_full
from backhaul_agent.ledger.disk_reserve import Reserve
from backhaul_agent.ledger.eviction_policy import EVENT, TELEMETRY
from backhaul_agent.ledger.ledger import Ledger
from backhaul_agent.ledger.system_events import event
from backhaul_codec import Point, encode_frame
from tests.agent.evictions import account_loosely, receipts, room_of
from tests.agent.ledgers import FailingDisk, open_ledger
from tests.agent.writers import CONFIG, RunningClock
from tests.support.agent_clock import FakeClock
from tests.support.small_disk import small_disk
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from backhaul_agent.commit.contents import Content
    from tests.support.small_disk import SmallDisk

__all__ = ["small_disk"]
MIB = 1 << 20
RESERVE = 2 * MIB


class FakeSpace:
    """A file system that says how much it has left."""

    def __init__(self, free: int) -> None:
        self.free = free

    def free_bytes(self, path: Path) -> int:
        return self.free

    def allocate(self, path: Path, size: int) -> None:
        if self.free < size:
            raise OSError(errno.ENOSPC, "No space left on device")
        path.write_bytes(b"")
        with path.open("r+b") as file:
            file.truncate(size)


class Bench:
    """A writer on a ledger, publishing one message at a time."""

    def __init__(self, ledger: Ledger, writer: Writer, run: asyncio.Task[None]) -> None:
        self.ledger = ledger
        self._run = run
        self.writer = writer
        self.kept: dict[int, int] = {TELEMETRY: 0, EVENT: 0}
        self._number = 0

    async def account(self) -> None:
        """Stop the writer, and see that every seq is held or explained."""
        self.writer.stop()
        await asyncio.wait_for(self._run, 60)
        await account_loosely(self.ledger, {"live": 0, "bulk": 0})

    async def keep(self, count: int) -> None:
        """Publish so much telemetry, all of it kept."""
        for _ in range(count):
            assert await self.publish(TELEMETRY) == "kept"

    async def publish(self, value_class: int, size: int = 20_000) -> str:
        """Return "kept", or the code and message of the refusal."""
        self._number += 1
        noise = (self._number.to_bytes(4, "big") * (size // 4 + 1))[:size]
        content: Frame | ConfigWrite
        if value_class == TELEMETRY:
            point = Point("n", "t", self._number, noise)
            body = encode_frame([point], epoch=0, seq=0, compression="none")
            content = Frame("n", body, 1, (self._number, self._number))
        else:
            content = ConfigWrite([event("crash", {"x": noise.hex()[:size]}, self._number)], [])
        answered: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def answer(_: Content, refusal: RefusedError | None) -> None:
            answered.set_result(f"{refusal.code}: {refusal.message}" if refusal else "kept")

        try:
            self.writer.submit(QueuedPublish(content, size, True, answer))
        except RefusedError as refusal:
            return f"{refusal.code}: {refusal.message}"
        said = await asyncio.wait_for(answered, 60)
        self.kept[value_class] += said == "kept"
        return said


@asynccontextmanager
async def bench(
    directory: Path, reserve: Reserve, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> AsyncIterator[Bench]:
    monkeypatch.setattr("backhaul_agent.commit.eviction.RETAKE_S", 0.02)
    monkeypatch.setattr("backhaul_agent.commit.commit_loop.RETRY_S", 0.02)
    ledger = await Ledger.open(
        directory / "ledger.db", device="VID-001", bytes_max=256 * MIB, epoch=lambda: 42,
        reserve=reserve, **options,
    )  # fmt: skip
    task = None
    try:
        writer = Writer(ledger, CONFIG, RunningClock(), on_commit=lambda: None, reserve=reserve)
        await writer.restore()
        task = asyncio.create_task(writer.run())
        yield Bench(ledger, writer, task)
    finally:
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await ledger.close()


@pytest.mark.slow
async def test_a_full_disk_costs_the_oldest_telemetry_and_heals(
    small_disk: Callable[[int], SmallDisk], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = small_disk(24 * MIB)
    reserve = Reserve(disk.path / "ledger.db", RESERVE)
    async with bench(disk.path, reserve, monkeypatch) as it:
        assert reserve.held
        await it.keep(300)
        disk.fill()
        for number in range(400):
            assert await it.publish(EVENT if number % 10 == 0 else TELEMETRY) == "kept"
        assert it.ledger.budget.disk == f"the disk of {disk.path}"
        assert not reserve.held
        told = await receipts(it.ledger)
        assert {row["lane"] for row in told} == {"bulk"}
        assert {row["reason"] for row in told} == {"evicted: ledger full"}
        rows = await it.ledger.query("SELECT count(*) FROM messages WHERE subject = 'e.crash'")
        assert rows == [(40,)]
        disk.drain()
        await until(lambda: reserve.held and not it.ledger.budget.disk)
        before = it.writer.eviction.evicted
        await it.keep(200)
        assert it.writer.eviction.evicted == before
    async with bench(disk.path, reserve, monkeypatch) as it:
        await it.account()


async def test_what_cannot_be_kept_is_refused_with_the_disks_name(
    small_disk: Callable[[int], SmallDisk], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = small_disk(24 * MIB)
    reserve = Reserve(disk.path / "ledger.db", RESERVE)
    async with bench(disk.path, reserve, monkeypatch, when_full="refuse") as it:
        for _ in range(200):
            assert await it.publish(EVENT) == "kept"
        disk.fill()
        said = ""
        for _ in range(400):
            said = await it.publish(TELEMETRY)
            if said != "kept":
                break
        assert said.startswith("storage: ")
        assert f"the disk of {disk.path} is full" in said
        assert 'when_full is "refuse"' in await it.publish(EVENT)
        assert await receipts(it.ledger) == []
        rows = await it.ledger.query("SELECT count(*) FROM messages WHERE subject = 'e.crash'")
        assert rows == [(200,)]
        disk.drain()
        await until(lambda: not it.ledger.budget.disk)
        assert await it.publish(TELEMETRY) == "kept"


@pytest.mark.slow
async def test_a_disk_that_others_fill_again_at_once_loses_nothing(
    small_disk: Callable[[int], SmallDisk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is given free, somebody else has it: refused perhaps, but never half kept."""
    disk = small_disk(24 * MIB)
    reserve = Reserve(disk.path / "ledger.db", RESERVE)
    async with bench(disk.path, reserve, monkeypatch) as it:
        await it.keep(200)
        release = Reserve.release

        def robbed(self: Reserve) -> bool:
            done = release(self)
            disk.fill()
            return done

        monkeypatch.setattr(Reserve, "release", robbed)
        disk.fill()
        for _ in range(200):
            said = await it.publish(TELEMETRY)
            assert said == "kept" or said.startswith("storage: ")
            disk.fill()
        disk.drain()
        await until(lambda: reserve.held and not it.ledger.budget.disk)
        assert await it.publish(TELEMETRY) == "kept"
        assert it.ledger.lanes["bulk"].last_seq == it.kept[TELEMETRY]
        await it.account()


async def test_an_agent_starts_on_a_full_disk(
    small_disk: Callable[[int], SmallDisk], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = small_disk(24 * MIB)
    reserve = Reserve(disk.path / "ledger.db", RESERVE)
    async with bench(disk.path, reserve, monkeypatch) as it:
        await it.keep(200)
    disk.fill()
    async with bench(disk.path, reserve, monkeypatch) as it:
        await it.keep(100)
        assert await receipts(it.ledger)
        await it.account()


@pytest.mark.parametrize(
    "error",
    [sqlite3.OperationalError("database or disk is full"), OSError(errno.ENOSPC, "No space left")],
    ids=["sqlite", "enospc"],
)
async def test_by_the_seam_room_is_made_and_the_commit_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    space = FakeSpace(100 * MIB)
    reserve = Reserve(tmp_path / "ledger.db", RESERVE, space)
    disk = FailingDisk()
    async with bench(tmp_path, reserve, monkeypatch, opener=disk) as it:
        await it.keep(50)

        def heal() -> None:
            disk.at = "never"  # what the reserve gave free is enough

        space.free, disk.error, disk.on_failure = 0, error, heal
        assert await it.publish(TELEMETRY) == "kept"
        assert it.ledger.budget.disk
        assert not reserve.held
        assert len(await receipts(it.ledger)) == 1
        disk.on_failure, disk.at = lambda: None, "COMMIT"
        said = await it.publish(TELEMETRY)
        assert said.startswith(f"storage: nothing was kept: the disk of {tmp_path} is full")
        disk.error = None
        space.free = 100 * MIB
        await until(lambda: not it.ledger.budget.disk)
        assert reserve.held
        assert await it.publish(TELEMETRY) == "kept"


async def test_an_error_that_says_full_on_a_disk_with_space_costs_nothing_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve = Reserve(tmp_path / "ledger.db", RESERVE, FakeSpace(100 * MIB))
    disk = FailingDisk()
    async with bench(tmp_path, reserve, monkeypatch, opener=disk) as it:
        assert await it.publish(TELEMETRY) == "kept"
        disk.error = sqlite3.OperationalError("database or disk is full")
        assert (await it.publish(TELEMETRY)).startswith("storage: ")
        disk.error = None
        assert await it.publish(TELEMETRY) == "kept"
        assert it.writer.eviction.evicted == 0
        assert reserve.held


async def test_a_disk_with_space_that_fails_in_another_way_is_not_asked_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer looks after the room whenever that is due: else it would do nothing else."""
    ledger, clock = await open_ledger(tmp_path / "ledger.db"), FakeClock()
    reserve = Reserve(ledger.path, RESERVE, FakeSpace(100 * MIB))
    room = room_of(ledger, clock, reserve=reserve)
    ledger.budget.shrink(MIB, reserve.place)

    async def fail(_: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    try:
        with monkeypatch.context() as failing:
            failing.setattr("backhaul_agent.ledger.eviction_queries.release", fail)
            with pytest.raises(LedgerStorageError, match="disk I/O error"):
                await room.upkeep()
        assert room.upkeep_due_s() > clock.monotonic_s()
        await room.upkeep()
        assert not ledger.budget.disk
    finally:
        await ledger.close()


def test_the_reserve_is_taken_only_where_it_leaves_space_to_work(tmp_path: Path) -> None:
    space = FakeSpace(2 * RESERVE)
    reserve = Reserve(tmp_path / "l.db", RESERVE, space)
    assert not reserve.take()
    assert not reserve.held
    assert not reserve.short
    space.free = 2 * RESERVE + MIB
    assert reserve.take()
    assert reserve.held
    assert reserve.release()
    assert not reserve.release()
    space.free = RESERVE - 1
    assert reserve.short


def test_a_reserve_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    class Liar(FakeSpace):
        def allocate(self, path: Path, size: int) -> None:
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")

    reserve = Reserve(tmp_path / "l.db", RESERVE, Liar(100 * MIB))
    assert not reserve.take()
    assert not reserve.path.exists()
    assert Reserve(tmp_path / "l.db", 0, FakeSpace(100 * MIB)).take()


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (OSError(errno.ENOSPC, "x"), True),
        (OSError(errno.EDQUOT, "x"), True),
        (OSError(errno.EIO, "x"), False),
        (sqlite3.OperationalError("database or disk is full"), True),
        (sqlite3.OperationalError("disk I/O error"), False),
    ],
)
def test_which_errors_mean_a_full_disk(tmp_path: Path, error: Exception, full: bool) -> None:
    assert says_full(error) is full
    assert LedgerStorageError(tmp_path, "commit", error).disk_full is full

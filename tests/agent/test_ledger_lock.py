"""One ledger, one agent: real processes on one configuration."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import TYPE_CHECKING

import pytest

from backhaul_agent.errors import LedgerInUseError, LedgerStorageError
from backhaul_agent.ledger.damage import asides, set_aside
from backhaul_agent.ledger.disk_reserve import Reserve
from backhaul_agent.ledger.lock import LedgerLock
from tests.agent.second_agent import second
from tests.support.agent_process import AgentProcess
from tests.support.rig.ports import free_port
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path


def files(directory: Path) -> dict[str, bytes]:
    """Return what a second agent must leave as it is; the log of the first one goes on by itself."""
    ours = [file for file in directory.iterdir() if file.name != "agent.log"]
    return {file.name: file.read_bytes() for file in ours}


async def until_started(agent: AgentProcess) -> None:
    await until(lambda: agent.log.exists() and '"started"' in agent.log.read_text())


@pytest.mark.slow
async def test_a_second_agent_refuses_with_the_pid_of_the_first_and_changes_nothing(
    tmp_path: Path,
) -> None:
    """Without a leaf server: what the first does then stands still."""
    first = AgentProcess(tmp_path, f"nats://127.0.0.1:{free_port()}")
    first.start()
    try:
        await until_started(first)
        before = await quiet(tmp_path)
        refused = second(first)
        assert refused.returncode == 1, refused.stderr
        assert f"pid {first.pid}" in refused.stderr
        assert "systemctl stop backhaul-agent" in refused.stderr
        assert len(refused.stderr.splitlines()) == 1, "no traceback, and nothing was started"
        assert files(tmp_path) == before
        first.kill()
        first.start()  # at once: the kernel has let go of the lock
        assert await first.ended() is None
    finally:
        first.stop()


async def quiet(directory: Path) -> dict[str, bytes]:
    """Return the files once the agent, which marks its start, has nothing to write for a while."""
    before: dict[str, bytes] = {}
    for _ in range(100):
        if before == (before := files(directory)):
            return before
        await asyncio.sleep(0.5)
    pytest.fail("the agent never came to rest")


@pytest.mark.slow
async def test_a_ledger_that_is_set_aside_leaves_the_lock_where_it_is(tmp_path: Path) -> None:
    """The first agent sets a damaged ledger aside and goes on; a second one is refused all the same."""
    first = AgentProcess(tmp_path, f"nats://127.0.0.1:{free_port()}")
    first.ledger.write_bytes(b"no database, nor ever was" * 1000)
    first.start()
    try:
        await until_started(first)
        assert asides(first.ledger)
        refused = second(first)
        assert refused.returncode == 1
        assert f"pid {first.pid}" in refused.stderr
        assert len(asides(first.ledger)) == 1
    finally:
        first.stop()


def test_a_lock_is_held_until_it_is_released(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with LedgerLock(path):
        with pytest.raises(LedgerInUseError) as refused, LedgerLock(path):
            pass
        assert refused.value.pid
        set_aside(path)
        with pytest.raises(LedgerInUseError), LedgerLock(path):
            pass
    with LedgerLock(path):
        pass


def test_a_lock_names_a_pid_that_is_shorter_than_the_last_one(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with LedgerLock(path, pid=4194304):
        pass
    with (
        LedgerLock(path, pid=7),
        pytest.raises(LedgerInUseError, match=r"\(pid 7\)"),
        LedgerLock(path),
    ):
        pass


def test_a_lock_file_that_names_nobody_locks_all_the_same(tmp_path: Path) -> None:
    """The disk was full when the pid should have been written, or somebody else wrote there."""
    path = tmp_path / "ledger.db"
    with LedgerLock(path) as lock:
        for said in (b"", b"\xff\xfe nobody", b"9" * 100):
            lock.path.write_bytes(said)
            with pytest.raises(LedgerInUseError, match="another agent is using it"):
                LedgerLock(path).__enter__()


def test_a_lock_file_that_was_removed_locks_nothing_and_is_noticed(tmp_path: Path) -> None:
    with LedgerLock(tmp_path / "ledger.db") as lock:
        assert lock.stands
        lock.path.unlink()
        assert not lock.stands
        lock.path.touch()
        assert not lock.stands


def test_a_place_where_nothing_can_be_locked_is_said_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(LedgerStorageError, match="locking failed"):
        LedgerLock(tmp_path / "nowhere" / "ledger.db").__enter__()


def test_a_lock_file_that_was_removed_is_made_and_locked_anew(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with LedgerLock(path, pid=7) as lock:
        lock.path.unlink()
        lock.renew()
        assert lock.stands
        with pytest.raises(LedgerInUseError, match=r"\(pid 7\)"), LedgerLock(path):
            pass


def test_the_agent_whose_lock_file_was_removed_ends_where_another_has_come(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with LedgerLock(path) as lock:
        lock.path.unlink()
        with LedgerLock(path, pid=8), pytest.raises(LedgerInUseError, match=r"\(pid 8\)"):
            lock.renew()


@pytest.mark.slow
async def test_an_agent_that_ends_for_another_says_so_and_what_to_do(tmp_path: Path) -> None:
    url = f"nats://127.0.0.1:{free_port()}"
    agent = AgentProcess(tmp_path, url, extra="[health]\ninterval_s = 0.1")
    agent.start()
    try:
        await until_started(agent)
        (tmp_path / "ledger.db.lock").unlink()
        with LedgerLock(agent.ledger, pid=8):
            assert await agent.ended(60) == 1
        said = agent.log.read_text()
        assert "(pid 8)" in said
        assert "systemctl stop backhaul-agent" in said
        assert "Traceback" not in said
    finally:
        agent.stop()


def test_on_a_full_disk_the_reserve_makes_room_for_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent of before had no lock file, and its disk is full when the new one starts."""
    path = tmp_path / "ledger.db"
    reserve = Reserve(path, 4096)
    assert reserve.take()
    really = os.open

    def full(name: str | Path, *rest: int) -> int:
        if str(name).endswith(".lock") and reserve.held:
            raise OSError(errno.ENOSPC, "No space left on device")
        return really(name, *rest)

    monkeypatch.setattr("backhaul_agent.ledger.lock.os.open", full)
    with pytest.raises(LedgerStorageError) as told, LedgerLock(path):
        pass
    assert told.value.disk_full
    with LedgerLock(path, reserve) as lock:
        assert lock.stands
    assert not reserve.held


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_a_lock_that_root_makes_is_its_directorys_owners(tmp_path: Path) -> None:
    """As by `adopt-ledger`: the agent, which is not root, must be able to open it."""
    os.chown(tmp_path, 12345, 12346)
    with LedgerLock(tmp_path / "ledger.db") as lock:
        found = lock.path.stat()
    assert (found.st_uid, found.st_gid) == (12345, 12346)

"""The agent as a process whose ledger is damaged, cannot be used, or finds no room."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from itertools import count
from typing import TYPE_CHECKING

import pytest

from backhaul_agent import daemon as daemon_module
from backhaul_agent.config import parse
from backhaul_agent.daemon import SET_ASIDE_MAX, Daemon
from backhaul_agent.errors import LedgerError
from backhaul_codec import Opaque
from backhaul_runtime.clock import SystemClock
from tests.agent.bench import Recorder, bench
from tests.agent.ledgers import FailingDisk
from tests.agent.running_parts import events_of
from tests.support.agent_process import AgentProcess
from tests.support.agent_streams import points_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.nats_server import NatsServer

pytestmark = pytest.mark.nats


def test_a_ledger_that_cannot_be_used_ends_the_process_with_a_hint(tmp_path: Path) -> None:
    agent = AgentProcess(tmp_path, "nats://127.0.0.1:1")
    db = sqlite3.connect(agent.ledger)
    db.execute("CREATE TABLE meta (of, another, program)")
    db.close()
    agent.start()
    assert agent.wait() == 1
    assert "check ledger.path" in agent.log.read_text()


async def test_a_damaged_ledger_is_set_aside_at_the_start(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    ledger, kept = tmp_path / "ledger.db", tmp_path / "ledger.db.damaged.2"
    older = tmp_path / "ledger.db.damaged"
    older.write_bytes(b"an older one")
    ledger.write_bytes(b"garbage" * 1000)
    async with bench(tmp_path, nats_server) as it:
        assert await it.ask("app.a.b", "1") == {"kept": 1}
        await it.drained()
        (said,) = [point for point in await events_of(it.client) if point.type == "quarantined"]
        assert isinstance(said.value, Opaque)
        assert "not a database" in json.loads(said.value.data)["ledger"]
    assert kept.read_bytes() == b"garbage" * 1000
    assert older.read_bytes() == b"an older one"


async def test_a_ledger_that_turns_out_damaged_is_set_aside_and_a_new_one_goes_on(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with bench(tmp_path, nats_server) as it:
        assert await it.ask("app.a.b", "1") == {"kept": 1}
        assert (await it.drained())["epoch"] == 42
        it.disk.on_failure = lambda: setattr(it.disk, "error", None)
        it.disk.error = malformed()
        answer = await it.ask("app.a.b", "2")
        assert answer["error"]["code"] == "storage"
        await it.until(lambda status: bool(status["epoch"] == 43))
        await it.drained()
        assert await it.ask("app.a.b", "3") == {"kept": 1}
        await it.drained()
        assert [point.value for point in await points_of(it.client, "OUT_bulk")] == [1.0, 3.0]
    db = sqlite3.connect(tmp_path / "ledger.db.damaged")
    assert db.execute("SELECT value FROM meta WHERE name = 'epoch'").fetchone() == (42,)
    db.close()


async def test_what_was_damaged_is_told_also_where_the_next_ledger_is_damaged_at_once(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    (tmp_path / "ledger.db").write_bytes(b"garbage" * 1000)
    disk = FailingDisk()  # for the second one: the first is not even read so far
    disk.at, disk.error = "PRAGMA synchronous", malformed()
    disk.on_failure = lambda: setattr(disk, "error", None)
    async with bench(tmp_path, nats_server, disk=disk) as it:
        assert await it.ask("app.a.b", "1") == {"kept": 1}
        await it.drained()
        said = [point.value for point in await events_of(it.client) if point.type == "quarantined"]
        told = [json.loads(value.data)["ledger"] for value in said if isinstance(value, Opaque)]
    assert ["not a database" in each for each in told] == [True, False]
    assert "malformed" in told[1]


async def test_a_disk_that_damages_one_ledger_after_the_other_ends_the_agent(
    tmp_path: Path,
) -> None:
    disk = FailingDisk()
    disk.at, disk.error = "PRAGMA", malformed()
    text = '[device]\nid = "VID-001"\ntoken = "tok1"\n[ledger]\npath = "ledger.db"\n'
    daemon = Daemon(
        parse(text, tmp_path / "agent.toml"),
        clock=SystemClock(),
        random_u32=count(42).__next__,
        notifier=Recorder(),
        opener=disk,
    )
    with pytest.raises(LedgerError, match="malformed"):
        await asyncio.wait_for(daemon.run(), 60)
    assert disk.opened == SET_ASIDE_MAX + 1


async def test_an_agent_that_starts_on_a_full_disk_waits_for_room(
    tmp_path: Path, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_module, "ROOM_LOOK_S", 0.01)
    disk = FailingDisk()
    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL
    disk.at, disk.error = "PRAGMA synchronous", full

    def room_at_last() -> None:
        if disk.opened >= 5:
            disk.error = None

    disk.on_failure = room_at_last
    async with bench(tmp_path, nats_server, disk=disk) as it:
        assert await it.ask("app.a.b", "1") == {"kept": 1}
        assert disk.opened >= 5


def malformed() -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError("database disk image is malformed")
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error

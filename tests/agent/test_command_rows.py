"""The ledger's rows of commands: how many are kept, and which are forgotten."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from backhaul_agent.ledger import command_rows
from backhaul_agent.ledger.command_rows import Arrived, State
from backhaul_agent.ledger.rows import Changes
from tests.agent.command_rig import NOW, S
from tests.agent.ledgers import open_ledger

if TYPE_CHECKING:
    from pathlib import Path


async def test_only_what_cannot_run_any_more_is_forgotten(tmp_path: Path) -> None:
    ledger = await open_ledger(tmp_path / "l.db")
    day_ns = 86_400 * S
    for number in range(30):
        deadline_ns = NOW + (number - 20) * day_ns
        came = Arrived(f"c{number}", "x", b"null", deadline_ns - S, deadline_ns)
        await ledger.commit(Changes(commands=[command_rows.take_in(came, 10)]))
        if number != 3:  # which nobody has ended
            done = command_rows.finish(number + 1, State.DONE, deadline_ns, b"{}")
            await ledger.commit(Changes(commands=[done]))
    await ledger.commit(Changes(commands=[command_rows.forget(NOW, 7.0, 1000)]))
    left = [row[0] for row in await ledger.query("SELECT id FROM commands ORDER BY number")]
    assert left == ["c3", *(f"c{number}" for number in range(13, 30))]
    await ledger.commit(Changes(commands=[command_rows.forget(NOW, 7.0, 5)]))
    left = [row[0] for row in await ledger.query("SELECT id FROM commands ORDER BY number")]
    assert left == ["c3", *(f"c{number}" for number in range(20, 30))]  # those may come again
    await ledger.close()


async def test_the_rows_of_commands_are_bounded(tmp_path: Path) -> None:
    ledger = await open_ledger(tmp_path / "l.db")
    limit = 10 * command_rows.ROWS_MAX_TIMES
    for number in range(limit + 5):
        came = Arrived(f"c{number}", "x", b"null", NOW, NOW + S)
        await ledger.commit(Changes(commands=[command_rows.take_in(came, 10)]))
    assert await ledger.query("SELECT count(*) FROM commands") == [(limit,)]
    await ledger.commit(Changes(commands=[command_rows.take_in(Arrived("c1", "x", b"", 1, 1), 10)]))
    assert await ledger.query("SELECT id FROM commands WHERE owed") == [("c1",)]
    await ledger.close()


async def test_a_ledger_without_commands_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    await (await open_ledger(path)).close()
    db = sqlite3.connect(path)
    db.executescript("DROP TABLE commands; DROP TABLE chains; PRAGMA user_version = 2")
    db.close()
    ledger = await open_ledger(path)
    assert await command_rows.oldest(ledger) is None
    await ledger.close()

"""The ledger's rows of commands: how many are kept, and which are forgotten."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from backhaul_agent.commands.service import _again
from backhaul_agent.errors import LedgerCorruptError
from backhaul_agent.ledger import command_rows
from backhaul_agent.ledger.command_rows import (
    OLDER_COMMANDS,
    Arrived,
    CommandRow,
    RunOutcome,
    RunState,
)
from backhaul_agent.ledger.rows import LedgerChanges
from backhaul_codec import Opaque, decode
from backhaul_codec.protocol.command_errors import ErrorCode
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
        await ledger.commit(LedgerChanges(commands=[command_rows.take_in(came, 10)]))
        if number != 3:  # which nobody has ended
            done = command_rows.finish(number + 1, RunOutcome(RunState.DONE), deadline_ns)
            await ledger.commit(LedgerChanges(commands=[done]))
    await ledger.commit(LedgerChanges(commands=[command_rows.forget(NOW, 7.0, 1000)]))
    left = [row[0] for row in await ledger.query("SELECT id FROM commands ORDER BY number")]
    assert left == ["c3", *(f"c{number}" for number in range(13, 30))]
    await ledger.commit(LedgerChanges(commands=[command_rows.forget(NOW, 7.0, 5)]))
    left = [row[0] for row in await ledger.query("SELECT id FROM commands ORDER BY number")]
    assert left == ["c3", *(f"c{number}" for number in range(20, 30))]  # those may come again
    await ledger.close()


async def test_the_rows_of_commands_are_bounded(tmp_path: Path) -> None:
    ledger = await open_ledger(tmp_path / "l.db")
    limit = 10 * command_rows.ROWS_MAX_TIMES
    for number in range(limit + 5):
        came = Arrived(f"c{number}", "x", b"null", NOW, NOW + S)
        await ledger.commit(LedgerChanges(commands=[command_rows.take_in(came, 10)]))
    assert await ledger.query("SELECT count(*) FROM commands") == [(limit,)]
    await ledger.commit(
        LedgerChanges(commands=[command_rows.take_in(Arrived("c1", "x", b"", 1, 1), 10)])
    )
    assert await ledger.query("SELECT id FROM commands WHERE owed") == [("c1",)]
    await ledger.close()


async def test_a_ledger_without_commands_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    await (await open_ledger(path)).close()
    db = sqlite3.connect(path)
    db.executescript(
        "DROP TABLE commands; DROP TABLE chains; DROP TABLE dictionaries; PRAGMA user_version = 2"
    )
    db.close()
    ledger = await open_ledger(path)
    assert await command_rows.oldest(ledger) is None
    await ledger.close()


CUT = "cut short after 1 start(s); it may be done"
BIG = '{"n":18446744073709551615,"f":0.10000000000000001,"t":"Ärger \\"x\\""}'
# State and `said` as ledgers of schema 4 have them, and the code that is made of it.
OLDER = [
    ("done", '{"state":"done","name":"go","runs":1,"result":' + BIG + "}", ""),
    ("done", '{"state":"done","name":"go","runs":1,"result":null}', ""),
    ("done", '{"state":"done","name":"go","runs":1,"error":"its result had 9 bytes, 8 are kept: none is"}', "result-too-large"),
    ("failed", '{"state":"failed","name":"go","runs":1,"error":"exit status 3","result":{"exit":3}}', "exit-status"),
    ("failed", '{"state":"failed","name":"go","runs":1,"error":"the door is stuck"}', "by-program"),
    ("expired", '{"state":"expired","name":"go","runs":0,"error":"its deadline had passed before it could be started"}', "late"),
    ("interrupted", '{"state":"interrupted","name":"go","runs":2,"error":"%s"}' % CUT, "cut-short"),  # noqa: UP031
    ("interrupted", '{"state":"interrupted","name":"go","runs":0,"error":"sent before this vehicle\'s ledger began: it may have run before"}', "before-ledger"),
]  # fmt: skip


def older_ledger(path: Path, *more: tuple[str, str | bytes]) -> None:
    """Have a ledger be of schema 4: a command of each kind, `more`, one that waits and one that runs."""
    with closing(sqlite3.connect(path)) as db:
        db.executescript(
            f"DROP TABLE commands; DROP TABLE dictionaries; {OLDER_COMMANDS} PRAGMA user_version = 4;"
        )
        ended = [(state, said.encode()) for state, said, _ in OLDER]
        for number, (state, said) in enumerate([*ended, *more, ("waiting", b""), ("running", b"")]):
            over = said != b""
            # `runs` of the row counts the start of one that was never begun, too.
            values = (
                number + 5,
                f"c{number}",
                "go",
                b"" if over else b"[1]",
                NOW,
                NOW + S,
                state,
                3,
            )
            db.execute(
                "INSERT INTO commands VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*values, NOW if over else 0, said, int(over)),
            )
        db.commit()


async def test_each_kind_of_command_of_schema_4_is_answered_as_before(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    await (await open_ledger(path)).close()
    older_ledger(path)
    ledger = await open_ledger(path)
    owed = await command_rows.owed(ledger, 100)
    assert [(each.number, each.id, each.ended_ns) for each in owed] == [
        (number + 5, f"c{number}", NOW) for number in range(len(OLDER))
    ]
    for each, (state, said, code) in zip(owed, OLDER, strict=True):
        assert (each.outcome.state, each.outcome.code) == (state, code)
        point = decode(_again(each).body, key=each.id).points[0]
        assert isinstance(point.value, Opaque)
        told = json.loads(point.value.data)
        assert told.pop("code", "") == code
        assert told == json.loads(said)
    assert owed[0].outcome.result == BIG.encode()
    waits = await command_rows.oldest(ledger)
    n = len(OLDER)
    assert waits == CommandRow(n + 5, f"c{n}", "go", b"[1]", NOW, NOW + S, RunState.WAITING, 3)
    await ledger.commit(
        LedgerChanges(commands=[command_rows.finish(n + 5, RunOutcome(RunState.DONE), NOW)])
    )
    runs = await command_rows.oldest(ledger)
    assert runs == CommandRow(n + 6, f"c{n + 1}", "go", b"[1]", NOW, NOW + S, RunState.RUNNING, 3)
    await ledger.close()


@pytest.mark.parametrize("said", [b"{", b'{"state": "done\xff', b"\xff"])
async def test_a_word_of_schema_4_that_damage_made_unreadable_says_so(
    tmp_path: Path, said: bytes
) -> None:
    path = tmp_path / "l.db"
    await (await open_ledger(path)).close()
    older_ledger(path, ("done", said))
    ledger = await open_ledger(path)
    lost = (await command_rows.owed(ledger, 100))[-1]
    assert (lost.id, lost.outcome.state, lost.outcome.code) == ("c8", "interrupted", "damaged")
    assert "damaged" in lost.outcome.error
    await ledger.close()


async def test_a_sentence_or_a_state_with_damage_is_answered_all_the_same(tmp_path: Path) -> None:
    ledger = await open_ledger(tmp_path / "l.db")
    came = Arrived("c1", "x", b"null", NOW, NOW + S)
    failed = RunOutcome(RunState.FAILED, ErrorCode.BY_PROGRAM, "stuck", b"{}", 1)
    await ledger.commit(LedgerChanges(commands=[command_rows.take_in(came, 10)]))
    await ledger.commit(LedgerChanges(commands=[command_rows.finish(1, failed, NOW)]))
    await ledger.commit(LedgerChanges(commands=[command_rows.take_in(came, 10)]))
    for spoilt, state in (("error = x'73ff'", "failed"), ("state = 'dgne'", "interrupted")):
        await ledger._db.execute(f"UPDATE commands SET {spoilt}")
        [row] = await command_rows.owed(ledger, 10)
        assert row.outcome == failed._replace(
            state=RunState(state), error="s\N{REPLACEMENT CHARACTER}"
        )
        assert _again(row)
    await ledger.close()


async def test_a_row_of_schema_4_that_is_none_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    await (await open_ledger(path)).close()
    older_ledger(path)
    with closing(sqlite3.connect(path)) as db:
        db.executescript(
            "PRAGMA writable_schema = 1; UPDATE sqlite_master SET sql = "
            "replace(sql, 'name TEXT NOT NULL,', 'name TEXT,         ') WHERE name = 'commands'"
        )
    with closing(sqlite3.connect(path)) as db:
        db.executescript(
            "UPDATE commands SET name = NULL WHERE id = 'c1'; PRAGMA writable_schema = 1;"
            "UPDATE sqlite_master SET sql = "
            "replace(sql, 'name TEXT,         ', 'name TEXT NOT NULL,') WHERE name = 'commands'"
        )
    with pytest.raises(LedgerCorruptError, match="NOT NULL"):
        await open_ledger(path)

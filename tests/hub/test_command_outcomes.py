"""The word on a command: as a vehicle says it, as older rows of hub.db have it, as it is told."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_codec.protocol.command_errors import ErrorCode
from backhaul_hub import questions
from backhaul_hub.commands import rows as command_rows
from backhaul_hub.commands.command import Command
from backhaul_hub.commands.outcome import DOUBT_RANK, NOTHING, By, Doubt, Outcome, State
from backhaul_hub.db.older_commands import OLDER_COMMANDS
from backhaul_hub.db.store import Registry
from tests.hub.command_book import NOW, S, vehicle_says
from tests.support.hub_db_tables import tables_after

if TYPE_CHECKING:
    from pathlib import Path

UNHEARD = "no word from the vehicle by its deadline"
DOUBTED = f"{UNHEARD}, whose ledger began anew since it was sent: it may have run"
CUT = "cut short after 1 start(s); it may be done"
LATE = "started, as the hub heard after it had given it up; no end is heard yet"
RUNS_MAX = (1 << 63) - 1
ALL_SAID = ("runs", "result", "error", "by", "epoch")
BIG = '{"n":18446744073709551615,"f":0.10000000000000001,"t":"Ärger \\"x\\""}'


def hub(error: str, code: ErrorCode, doubt: int = 0) -> Outcome:
    return Outcome(By.HUB, code, error, doubt=doubt)


# State, rank and `said` as hub.db of schema 14 has them, and what is made of it.
OLDER: list[tuple[State, int, str, Outcome]] = [
    (State.QUEUED, 0, "{}", NOTHING),
    (State.SENT, 1, "{}", NOTHING),
    (State.ACCEPTED, 2, "{}", NOTHING),
    (State.SENT, 1, json.dumps({"error": DOUBTED, "by": "hub", "epoch": 8}), hub(DOUBTED, ErrorCode.NEW_LEDGER, 8)),
    (State.INTERRUPTED, 6, json.dumps({"error": DOUBTED, "by": "hub", "epoch": 8}), hub(DOUBTED, ErrorCode.NEW_LEDGER, 8)),
    (State.INTERRUPTED, 4, json.dumps({"error": LATE, "by": "hub"}), hub(LATE, ErrorCode.STARTED_LATE)),
    (State.INTERRUPTED, 4, '{"error":"started, and no result ever since","by":"hub"}', hub("started, and no result ever since", ErrorCode.NO_RESULT)),
    (State.EXPIRED, 3, json.dumps({"error": UNHEARD, "by": "hub"}), hub(UNHEARD, ErrorCode.UNHEARD)),
    (State.EXPIRED, 3, '{"error":"the vehicle was not connected before its deadline","by":"hub"}', hub("the vehicle was not connected before its deadline", ErrorCode.AWAY)),
    (State.FAILED, 8, '{"error":"not sent: there is no device X","by":"hub"}', hub("not sent: there is no device X", ErrorCode.REFUSED)),
    (State.INTERRUPTED, 7, json.dumps({"runs": 1, "error": CUT}), Outcome(By.VEHICLE, ErrorCode.CUT_SHORT, CUT, runs=1)),
    # A vehicle that uses the hub's own sentence does not speak for it.
    (State.EXPIRED, 5, json.dumps({"runs": 0, "error": UNHEARD}), Outcome(By.VEHICLE, ErrorCode.OTHER, UNHEARD)),
    (State.FAILED, 8, '{"runs":1,"error":"exit status 3","result":{"exit":3}}', Outcome(By.VEHICLE, ErrorCode.EXIT_STATUS, "exit status 3", '{"exit":3}', 1)),
    (State.DONE, 8, '{"runs":2,"result":' + BIG + "}", Outcome(By.VEHICLE, result=BIG, runs=2)),
    (State.DONE, 8, '{"runs":1,"result":null}', Outcome(By.VEHICLE, result="null", runs=1)),
    (State.DONE, 8, '{"runs":18446744073709551615}', Outcome(By.VEHICLE, runs=RUNS_MAX)),
]  # fmt: skip


def older_hub_db(path: Path) -> None:
    """Have a hub.db be of schema 14, with a command of each kind, c0 first."""
    with closing(sqlite3.connect(path)) as db:
        later = "".join(f"DROP TABLE {name};" for name in ("command", *tables_after(14)))
        db.executescript(f"{later} {OLDER_COMMANDS} PRAGMA user_version = 14;")
        for number, (state, rank, said, _) in enumerate(OLDER):
            ended_ns = NOW + 9 * S if state.over else 0
            values = (number + 5, "VID-001", f"c{number}", "go", "null", "me", NOW + S, NOW, state)
            db.execute(
                f"INSERT INTO command VALUES (?{', ?' * 13})",
                (*values, NOW + 1, 0, ended_ns, said, rank),
            )
        db.commit()


async def test_each_kind_of_row_of_schema_14_is_told_as_before(tmp_path: Path) -> None:
    path = tmp_path / "hub.db"
    await (await Registry.open(path)).close()
    older_hub_db(path)
    async with await Registry.open(path) as registry:
        commands = await command_rows.newest(registry, questions.CommandsQuestion())
        ranks = await registry.fetch("SELECT number, rank FROM command ORDER BY number")
    assert [(each.id, each.state, each.outcome) for each in commands] == [
        (f"c{number}", state, outcome) for number, (state, _, _, outcome) in enumerate(OLDER)
    ]
    assert [tuple(row) for row in ranks] == [(n + 5, row[1]) for n, row in enumerate(OLDER)]
    for command, (state, rank, said, _) in zip(commands, OLDER, strict=True):
        assert command.rank == rank
        told = command.told()
        words: dict[str, Any] = json.loads(said) if state.over else {}
        if "runs" in words:
            words["runs"] = min(words["runs"], RUNS_MAX)
        assert {key: told[key] for key in ALL_SAID if key in told} == words
        assert ("code" in told) == ("error" in told)


async def test_an_older_row_is_doubted_as_one_of_today(tmp_path: Path) -> None:
    path = tmp_path / "hub.db"
    await (await Registry.open(path)).close()
    older_hub_db(path)
    async with await Registry.open(path) as registry:
        await registry.write(command_rows.put_doubt(Doubt("VID-001", 8), []))
        doubted = await command_rows.doubted(registry, Doubt("VID-001", 8))
    unheard = next(n for n, row in enumerate(OLDER) if row[3].code is ErrorCode.UNHEARD)
    before = next(n for n, row in enumerate(OLDER) if row[1] == DOUBT_RANK)
    assert {each.id for each in doubted} == {f"c{unheard}", f"c{before}"}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"error": CUT}, ErrorCode.CUT_SHORT),
        ({"error": "other words", "code": "cut-short"}, ErrorCode.CUT_SHORT),
        ({"error": CUT, "code": "eaten-by-a-fox"}, ErrorCode.OTHER),
        ({"error": UNHEARD, "code": "unheard"}, ErrorCode.UNHEARD),
        ({}, ErrorCode.NONE),
    ],
)
def test_the_code_of_a_vehicle_counts_and_without_one_its_words(
    body: dict[str, Any], code: ErrorCode
) -> None:
    heard = vehicle_says({"state": "interrupted"} | body)
    assert (heard.outcome.by, heard.outcome.code) == (By.VEHICLE, code)
    assert heard.outcome.told().get("error") == body.get("error")


async def test_a_vehicle_that_uses_the_hubs_code_does_not_speak_for_it(tmp_path: Path) -> None:
    heard = vehicle_says({"state": "expired", "error": UNHEARD, "code": "unheard"})
    command = Command("VID-001", "a", "go", "null", "", NOW + S, NOW, heard.state)
    command.outcome, command.ended_ns = heard.outcome, NOW
    assert not command.unheard
    async with await Registry.open(tmp_path / "hub.db") as registry:
        await registry.write([command_rows.put([command])])
        await registry.write(command_rows.put_doubt(Doubt("VID-001", 8), []))
        assert await command_rows.find(registry, [command.key]) == [command]


async def test_more_runs_than_a_column_holds_end_nobody(tmp_path: Path) -> None:
    heard = vehicle_says({"state": "done", "runs": (1 << 64) - 1})
    command = Command("VID-001", "a", "go", "null", "", NOW, NOW)
    async with await Registry.open(tmp_path / "hub.db") as registry:
        await registry.write([command_rows.put([command])])
        await registry.write([command_rows.put_late(command.key, heard)])
        assert (await command_rows.find(registry, [command.key]))[0].outcome == heard.outcome

"""The ledger's rows of commands: what came, what was started, how it ended (docs/commands.md).

A row is written in the transaction that notes that IN was read so far, is `running` before anything
is started, and holds the result from the transaction that sends it. So the rows are the queue: nothing
about a command is only in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from backhaul_agent.ledger.reader import LedgerReader
from backhaul_agent.ledger.rows import Statement
from backhaul_codec.protocol.command_errors import ErrorCode, sql_of_older_words

SCHEMA = """
CREATE TABLE commands (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    params BLOB NOT NULL,
    sent_ns INTEGER NOT NULL,
    deadline_ns INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'waiting',
    runs INTEGER NOT NULL DEFAULT 0,
    ended_ns INTEGER NOT NULL DEFAULT 0,
    code TEXT NOT NULL DEFAULT '',
    error BLOB NOT NULL DEFAULT x'',
    result BLOB NOT NULL DEFAULT x'',
    owed INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX commands_open ON commands (number) WHERE state IN ('waiting', 'running') OR owed > 0;
"""
# As ledgers of schema 3 and 4 have it: the vehicle's word on a command was JSON in one column.
OLDER_COMMANDS = """
CREATE TABLE commands (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    params BLOB NOT NULL,
    sent_ns INTEGER NOT NULL,
    deadline_ns INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'waiting',
    runs INTEGER NOT NULL DEFAULT 0,
    ended_ns INTEGER NOT NULL DEFAULT 0,
    said BLOB NOT NULL DEFAULT x'',
    owed INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX commands_open ON commands (number) WHERE state IN ('waiting', 'running') OR owed > 0;
"""
_KEPT = "number, id, name, params, sent_ns, deadline_ns, ended_ns, owed"
_ERROR = "what was said of it is damaged in the ledger"
_OPEN = "(state IN ('waiting', 'running')) IS"
# A word that damage made unreadable is one of schema 5 that says so; the bytes of the others are taken as they are, so
# that damage is noticed as before.
TO_COLUMNS = f"""
ALTER TABLE commands RENAME TO older_commands;
DROP INDEX commands_open;
{SCHEMA}
INSERT INTO commands ({_KEPT}, state, runs) SELECT {_KEPT}, state, runs FROM older_commands
WHERE {_OPEN} TRUE;
INSERT INTO commands ({_KEPT}, state, runs, code, error, result)
SELECT {_KEPT}, state, CAST(coalesce(word ->> '$.runs', 0) AS INTEGER),
    {sql_of_older_words("state", "word ->> '$.error'")},
    CAST(coalesce(word ->> '$.error', '') AS BLOB), CAST(coalesce(word -> '$.result', '') AS BLOB)
FROM (SELECT *, CAST(said AS TEXT) AS word FROM older_commands)
WHERE {_OPEN} NOT TRUE AND json_valid(word) IS TRUE;
INSERT INTO commands ({_KEPT}, state, runs, code, error)
SELECT {_KEPT}, 'interrupted', runs, '{ErrorCode.DAMAGED}', CAST('{_ERROR}' AS BLOB)
FROM older_commands
WHERE {_OPEN} NOT TRUE AND json_valid(CAST(said AS TEXT)) IS NOT TRUE;
DROP TABLE older_commands;
"""  # noqa: S608 - constants
ROWS_MAX_TIMES = 10  # beyond so many times `[commands] rows_max` no command is taken in
REMEMBER_S_MIN = 3600.0  # after its deadline: longer than any clock here is wrong


class RunState(StrEnum):
    """Where a command stands on the vehicle; all but the first two are for ever."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    EXPIRED = "expired"
    INTERRUPTED = "interrupted"

    @classmethod
    def _missing_(cls, _: object) -> RunState:
        return cls.INTERRUPTED  # a word that damage made: nobody can know what it was


class Arrived(NamedTuple):
    """A command as the hub sent it. ``sent_ns`` and ``deadline_ns`` by the hub's clock."""

    id: str
    name: str
    params: bytes
    sent_ns: int
    deadline_ns: int


class CommandRow(NamedTuple):
    """A command as the ledger has it. ``runs``: how often it was started."""

    number: int
    id: str
    name: str
    params: bytes
    sent_ns: int
    deadline_ns: int
    state: RunState
    runs: int


class RunOutcome(NamedTuple):
    """The vehicle's word on a command that is over: for ever, and sent again whenever the hub asks.

    ``error``: for people, "" where all is well, as ``code`` is; ``result``: JSON, or empty; ``runs``: its starts.
    """

    state: RunState
    code: ErrorCode = ErrorCode.NONE
    error: str = ""
    result: bytes = b""
    runs: int = 0


class ResultAgain(NamedTuple):
    """A finished command that came again: its result is to be sent once more."""

    number: int
    id: str
    name: str
    ended_ns: int
    outcome: RunOutcome


def take_in(command: Arrived, rows_max: int) -> Statement:
    """Note a command; one that is known is owed its result, and one too many is left out."""
    return Statement(
        "INSERT INTO commands (id, name, params, sent_ns, deadline_ns) SELECT ?, ?, ?, ?, ? "
        "WHERE (SELECT count(*) FROM commands) < ? OR EXISTS (SELECT 1 FROM commands WHERE id = ?) "
        "ON CONFLICT (id) DO UPDATE SET owed = 1",
        (*command, rows_max * ROWS_MAX_TIMES, command.id),
    )


def begin(number: int) -> Statement:
    """Note that a command is being started; from here on it may have been."""
    return Statement(
        "UPDATE commands SET state = 'running', runs = runs + 1 WHERE number = ?", (number,)
    )


def finish(number: int, outcome: RunOutcome, ended_ns: int) -> Statement:
    """Note how a command ended; the same transaction sends it."""
    state, code, error, result, runs = outcome
    return Statement(
        "UPDATE commands SET state = ?, code = ?, error = ?, result = ?, runs = ?, ended_ns = ?, "
        "params = x'', owed = 0 WHERE number = ?",
        (state, code, error.encode(), result, runs, ended_ns, number),
    )


def answered(number: int) -> Statement:
    """Note that a result was sent again, in the same transaction."""
    return Statement("UPDATE commands SET owed = 0 WHERE number = ?", (number,))


def forget(now_ns: int, days_max: float, rows_max: int) -> Statement:
    """Forget finished commands that are too old or too many, but none that could still be run.

    What comes again after its deadline is not run, known or not; so only that may be forgotten.
    """
    return Statement(
        "DELETE FROM commands WHERE state NOT IN ('waiting', 'running') AND owed = 0 "
        "AND deadline_ns < ? AND (deadline_ns < ? "
        "OR number <= (SELECT max(number) FROM commands) - ?)",
        (now_ns - round(REMEMBER_S_MIN * 1e9), now_ns - round(days_max * 86_400e9), rows_max),
    )


async def oldest(ledger: LedgerReader) -> CommandRow | None:
    """Return the first command that is not finished, in order of arrival.

    Raises:
        LedgerStorageError: SQLite could not read.
    """
    rows = await ledger.query(
        "SELECT number, id, name, params, sent_ns, deadline_ns, state, runs FROM commands "
        "WHERE state IN ('waiting', 'running') ORDER BY number LIMIT 1"
    )
    return next((CommandRow(*row)._replace(state=RunState(row[6])) for row in rows), None)


async def owed(ledger: LedgerReader, rows_max: int) -> list[ResultAgain]:
    """Return finished commands that came again. Raises: LedgerStorageError."""
    found = []
    for number, id_, name, ended_ns, state, code, error, result, runs in await ledger.query(
        "SELECT number, id, name, ended_ns, state, code, CAST(error AS BLOB), result, runs "
        "FROM commands WHERE owed > 0 AND state NOT IN ('waiting', 'running') "
        "ORDER BY number LIMIT ?",
        rows_max,
    ):
        said = error.decode(errors="replace")
        outcome = RunOutcome(RunState(state), ErrorCode(code), said, result, runs)
        found.append(ResultAgain(number, id_, name, ended_ns, outcome))
    return found


async def finished(ledger: LedgerReader, ids: Sequence[str]) -> list[str]:
    """Return which of these commands are finished. Raises: LedgerStorageError."""
    rows = await ledger.query(
        "SELECT commands.id FROM commands JOIN json_each(?) ON value = commands.id "
        "WHERE state NOT IN ('waiting', 'running')",
        msgspec.json.encode(ids).decode(),
    )
    return [row[0] for row in rows]


class CommandTold(NamedTuple):
    """A command as people are told of it; ``error`` and ``result`` as of `RunOutcome`."""

    id: str
    name: str
    sent_ns: int
    deadline_ns: int
    ended_ns: int
    outcome: RunOutcome


async def newest(ledger: LedgerReader, rows_max: int, result_bytes_max: int) -> list[CommandTold]:
    """Return the commands that came last, the newest first, results cut. Raises: LedgerStorageError."""
    rows = await ledger.query(
        "SELECT CAST(id AS BLOB), CAST(name AS BLOB), sent_ns, deadline_ns, ended_ns, state, code, "
        "CAST(error AS BLOB), substr(CAST(result AS BLOB), 1, ?), runs FROM commands "
        "ORDER BY number DESC LIMIT ?",
        result_bytes_max,
        rows_max,
    )
    return [
        CommandTold(
            _word(id_), _word(name), sent, deadline, ended,
            RunOutcome(RunState(state), ErrorCode(code), _word(error), result or b"", runs),
        )
        for id_, name, sent, deadline, ended, state, code, error, result, runs in rows
    ]  # fmt: skip


def _word(raw: bytes | None) -> str:
    return (raw or b"").decode(errors="replace")

"""The table of commands as ledgers of schema 3 and 4 have it, and the change to that of schema 5.

The vehicle's word on a command was JSON in one column. A word that damage made unreadable is one of schema 5
that says so; the bytes of the others are taken as they are, so that damage is noticed as before.
"""

from __future__ import annotations

from backhaul_agent.ledger import command_rows
from backhaul_codec.protocol.command_errors import ErrorCode, sql_of_older_words

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
TO_COLUMNS = f"""
ALTER TABLE commands RENAME TO older_commands;
DROP INDEX commands_open;
{command_rows.SCHEMA}
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

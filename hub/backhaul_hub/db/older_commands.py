"""The table of commands as hub.db had it from schema 4 to 14, and the change to that of schema 15.

The word on a command was JSON in one column. The hub's own sentences of that time are known here alone,
a vehicle's in `protocol.command_errors`.
"""

from __future__ import annotations

from backhaul_codec.protocol.command_errors import ErrorCode, sql_of_older_words
from backhaul_hub.db import tables

OLDER_COMMANDS = """
CREATE TABLE command (
    number INTEGER PRIMARY KEY,
    device TEXT NOT NULL,
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    params TEXT NOT NULL,
    who TEXT NOT NULL,
    deadline_ns INTEGER NOT NULL,
    queued_ns INTEGER NOT NULL,
    state TEXT NOT NULL,
    sent_ns INTEGER NOT NULL,
    accepted_ns INTEGER NOT NULL,
    ended_ns INTEGER NOT NULL,
    said TEXT NOT NULL,
    rank INTEGER NOT NULL,
    UNIQUE (device, id)
) STRICT;
CREATE INDEX command_open ON command (number) WHERE ended_ns = 0;
"""
_UNHEARD = "no word from the vehicle by its deadline"
_KEPT = (
    "number, device, id, name, params, who, deadline_ns, queued_ns, state, sent_ns, accepted_ns, "
    "ended_ns"
)
# An open command of which the hub says something is in doubt: its state is no end yet.
_HUBS_WORDS = (
    ("failed", "not sent: *", ErrorCode.REFUSED),
    ("expired", _UNHEARD, ErrorCode.UNHEARD),
    ("expired", "the vehicle was not connected before its deadline", ErrorCode.AWAY),
    *(
        (state, f"{_UNHEARD}, whose ledger began anew *", ErrorCode.NEW_LEDGER)
        for state in ("queued", "sent", "interrupted")
    ),
    ("interrupted", "started, as the hub heard after *", ErrorCode.STARTED_LATE),
    ("interrupted", "started, and no result ever since", ErrorCode.NO_RESULT),
)
TO_COLUMNS = f"""
ALTER TABLE command RENAME TO older_command;
DROP INDEX command_open;
{tables.COMMANDS}
INSERT INTO command ({_KEPT}, rank, said_by, code, error, result, runs, doubt)
SELECT {_KEPT}, rank, said_by,
    CASE said_by WHEN 'hub' THEN {sql_of_older_words("state", "error", _HUBS_WORDS)}
        ELSE {sql_of_older_words("state", "error")} END,
    coalesce(error, ''), coalesce(said -> '$.result', ''),
    CAST(coalesce(said ->> '$.runs', 0) AS INTEGER), coalesce(said ->> '$.epoch', 0)
FROM (
    SELECT *, coalesce(said ->> '$.by', iif(said = '{{}}', '', 'vehicle')) AS said_by,
        said ->> '$.error' AS error
    FROM older_command
) ORDER BY number;
DROP TABLE older_command;
"""  # noqa: S608 - constants

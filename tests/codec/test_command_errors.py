"""The codes of errors of commands, and the sentences of vehicles that had none."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from backhaul_codec.protocol.command_errors import (
    ErrorCode,
    code_of_older_words,
    sql_of_older_words,
)

# As vehicles said them before there were codes.
OLDER = [
    ("interrupted", "cut short after 1 start(s); it may be done", "cut-short"),
    ("interrupted", "cut short after 1 start(s), and then nobody took it before its deadline", "cut-short-late"),
    ("interrupted", "cut short, and its deadline has passed since", "cut-short-late"),
    ("interrupted", "sent before this vehicle's ledger began: it may have run before", "before-ledger"),
    ("interrupted", "its program did not answer (nats: timeout); it may be done", "no-answer"),
    ("interrupted", "the leaf server went away meanwhile; it may be done", "leaf-away"),
    ("interrupted", "what was said of it is damaged in the ledger", "damaged"),
    ("interrupted", "a sentence that nobody knows", "other"),
    ("expired", "its deadline had passed before it could be started", "late"),
    ("expired", "its deadline passed while the ledger waited for the disk", "late-by-disk"),
    ("expired", "nobody took it before its deadline", "not-taken"),
    ("expired", "cut short after 1 start(s); it may be done", "other"),
    ("failed", "no handler: nobody answers on cmd.door.unlock", "no-handler"),
    ("failed", "/usr/bin/x cannot be started: [Errno 2]", "cannot-start"),
    ("failed", "exit status -9", "exit-status"),
    ("failed", "killed after 0.5 s", "killed"),
    ("failed", "its program's answer is not JSON", "bad-answer"),
    ("failed", "the door\nis 'stuck'", "by-program"),
    ("done", "its result had 70000 bytes, 8192 are kept: none is", "result-too-large"),
    ("done", "", ""),
]  # fmt: skip


@pytest.mark.parametrize(("state", "error", "code"), OLDER)
def test_a_sentence_without_a_code_has_the_same_one_read_and_migrated(
    state: str, error: str, code: str
) -> None:
    assert code_of_older_words(state, error) == code
    with closing(sqlite3.connect(":memory:")) as db:
        query = f"SELECT {sql_of_older_words('?1', '?2')}"
        assert db.execute(query, (state, error)).fetchone() == (code,)
        assert db.execute(query, (state, None)).fetchone() == ("",)


def test_a_code_of_a_newer_peer_is_another() -> None:
    assert ErrorCode("cut-short") is ErrorCode.CUT_SHORT
    assert ErrorCode("eaten-by-a-fox") is ErrorCode.OTHER

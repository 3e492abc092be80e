"""Sentences name their actor: headless clauses ("what ...", "whoever ...") only become fewer."""

from __future__ import annotations

import json

import pytest

from tests.support.prose import COUNTS, clauses, counted, prose


@pytest.mark.slow
def test_no_file_has_more_headless_clauses_than_were_written_down() -> None:
    allowed = json.loads(COUNTS.read_text())
    more = {
        file: f"{count}, allowed are {allowed.get(file, 0)}"
        for file, count in counted().items()
        if count > allowed.get(file, 0)
    }
    assert not more, "python -m tests.support.prose FILE shows them"


def test_clauses_are_counted_in_prose_alone() -> None:
    assert clauses("What stands in OUT is sent. Whoever asks is told.") == 2
    assert clauses("The agent sends the messages in OUT; a program that asks is told.") == 0
    assert clauses("What does it send?") == 0
    assert clauses("It is known to who asks, and a vehicle who asks") == 1
    assert clauses(prose("`what` and\n```\nwhat\n```\n[a](what.md)")) == 0

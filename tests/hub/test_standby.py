"""What the journal's entries, doubts and silences mean, and what is said of machines that follow."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_hub.db.change import RowChange
from backhaul_hub.errors import HubError
from backhaul_hub.health.conditions import STANDBY_AWAY, STANDBY_NOT_READY
from backhaul_hub.standby.entry import (
    Assembler,
    Entry,
    JournalError,
    messages_of,
    nonce_of,
    rows_of,
)
from backhaul_hub.standby.judgement import DoubtVerdict, judge
from backhaul_hub.standby.patience import LeaderPatience
from backhaul_hub.standby.report import FollowerReport, Followers

if TYPE_CHECKING:
    from backhaul_hub.standby.entry import JournalEntry

VALUES = (
    st.none() | st.integers(-(1 << 63), (1 << 63) - 1) | st.text() | st.binary() | st.booleans()
)


def rows(nonce: str, *values: Any) -> Entry:
    changes = rows_of([RowChange("INSERT INTO t VALUES (?)", [(each,) for each in values])])
    return Entry("rows", nonce, "a", 1, changes, len(values))


def read(bodies: list[bytes]) -> list[JournalEntry]:
    assembler = Assembler(0)
    return [found for seq, body in enumerate(bodies, 1) for found in assembler.take(seq, body)]


@given(st.lists(st.lists(VALUES, max_size=5), max_size=4), st.integers(1, 40))
def test_entries_come_back_as_they_were_in_however_many_parts(
    entries: list[list[Any]], part_bytes: int
) -> None:
    made = [rows(f"n{number}", *values) for number, values in enumerate(entries)]
    parts = [messages_of(entry, part_bytes) for entry in made]
    found = read([body for bodies in parts for body in bodies])
    assert [each.entry for each in found] == made
    ends = [sum(map(len, parts[: number + 1])) for number in range(len(parts))]
    assert [each.seq for each in found] == ends
    assert all(nonce_of(body) == f"n{at}" for at, bodies in enumerate(parts) for body in bodies)


def test_a_hole_a_foreign_part_and_garbage_are_no_entries() -> None:
    first, second = messages_of(rows("one", "x" * 50), 40), messages_of(rows("two", "y" * 50), 40)
    with pytest.raises(JournalError, match="message 1 of the journal is gone"):
        list(Assembler(0).take(2, first[1]))
    assembler = Assembler(0)
    assert list(assembler.take(1, first[0])) == []
    with pytest.raises(JournalError, match="no part of the one before"):
        list(assembler.take(2, second[1]))
    with pytest.raises(JournalError, match="cannot be read"):
        read([b"garbage"])
    assert nonce_of(b"garbage") == ""


def test_a_value_that_is_none_of_sqlites_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(TypeError):
        messages_of(rows("one", object()))


@pytest.mark.parametrize(
    ("found", "last_seq", "verdict"),
    [
        ("mine", 8, DoubtVerdict.STORED),
        ("mine", 20, DoubtVerdict.STORED),
        ("other", 8, DoubtVerdict.DEPOSED),
        (None, 7, DoubtVerdict.AGAIN),
        (None, 8, DoubtVerdict.ASK),
        (None, 6, DoubtVerdict.LOST),
    ],
)
def test_what_stands_in_an_entrys_place_says_what_became_of_it(
    found: str | None, last_seq: int, verdict: DoubtVerdict
) -> None:
    assert judge(7, "mine", found, last_seq) is verdict


@given(st.integers(0, 1 << 32))
def test_of_two_writers_with_one_position_one_is_stored_whatever_is_late(seed: int) -> None:
    """A journal that stores the first of what reaches it, in any order, late, twice or not at all."""
    random = Random(seed)
    journal: list[str] = []
    under_way = ["a", "b"]
    ends: dict[str, DoubtVerdict] = {}
    while len(ends) < 2:
        if under_way and random.random() < 0.5:
            nonce = under_way.pop(random.randrange(len(under_way)))
            if not journal and random.random() < 0.8:  # else it was lost
                journal.append(nonce)
        nonce = random.choice([each for each in "ab" if each not in ends])
        verdict = judge(0, nonce, journal[0] if journal else None, len(journal))
        if verdict is DoubtVerdict.AGAIN:
            under_way.append(nonce)
        else:
            ends[nonce] = verdict
    assert sorted(ends.values(), key=str) == [DoubtVerdict.DEPOSED, DoubtVerdict.STORED]
    assert ends[journal[0]] is DoubtVerdict.STORED


def test_silence_counts_only_between_answers_of_the_journals_leader() -> None:
    patience = LeaderPatience(3.0, "b")
    for now_s in (0.0, 1.0, 2.0):
        patience.answered(7, now_s)
    assert patience.silent_s == 2.0
    # The servers choose a leader: nobody could have said anything.
    patience.unanswered()
    patience.answered(7, 60.0)
    assert not patience.over
    # This one stood still: of an hour a second counts.
    patience.answered(7, 3660.0)
    assert patience.silent_s == 3.0
    assert patience.over
    patience.answered(8, 3660.1)
    assert not patience.over


@pytest.mark.parametrize(("to", "over"), [("", True), ("b", True), ("c", False)])
def test_a_machine_that_leaves_is_not_waited_for(to: str, over: bool) -> None:
    patience = LeaderPatience(3.0, "b")
    patience.answered(7, 0.0)
    patience.read(Entry("leave", "n", "a", to=to))
    assert patience.over is over
    patience.read(Entry("lead", "n", "c"))
    assert not patience.over


def test_who_follows_is_ready_behind_or_away() -> None:
    known = Followers(["b", "c"], 0.0)
    known.hear(FollowerReport("b", 90, ready=True), 1.0)
    known.hear(FollowerReport("c", 10, why="no copy"), 1.0)
    assert known.to_lead("", 1.5) == "b"
    with pytest.raises(HubError, match="c is not ready"):
        known.to_lead("c", 1.5)
    assert [(each["machine"], each["behind"], each["ready"]) for each in known.rows(100, 1.5)] == [
        ("b", 10, True),
        ("c", 90, False),
    ]
    found = [(each.code, each.place.about, each.detail) for each in known.findings(100, 1.5)]
    assert found == [(STANDBY_NOT_READY, "c", "no copy")]
    behind = [each.code for each in known.findings(5_000, 1.5)]
    assert behind == [STANDBY_NOT_READY, STANDBY_NOT_READY]
    assert [each.code for each in known.findings(100, 60.0)] == [STANDBY_AWAY, STANDBY_AWAY]
    with pytest.raises(HubError, match="no other machine is ready"):
        known.to_lead("", 60.0)

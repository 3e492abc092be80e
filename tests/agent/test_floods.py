"""How much of the agent's room one program may take, and what is counted of who takes more."""

from __future__ import annotations

import pytest

from backhaul_agent.apps.floods import NOTE_EVERY_S, TURN_S, Floods, QueueTurn, Shares
from backhaul_agent.config import IngestConfig
from backhaul_agent.errors import RefusedError


def test_one_program_never_has_all_of_the_room() -> None:
    shares = Shares(IngestConfig(pending_messages_max=16))
    for _ in range(12):
        shares.of("rude").require(10)
        shares.of("rude").take(10)
    with pytest.raises(RefusedError, match="busy"):
        shares.of("rude").require(10)
    shares.of("honest").require(10)
    shares.of("rude").give(10)
    shares.of("rude").require(10)


def test_nor_all_of_the_bytes_but_one_message_of_any_size() -> None:
    share = Shares(IngestConfig(pending_bytes_max=1 << 20)).of("rude")
    share.require(1 << 20)
    share.take(700_000)
    with pytest.raises(RefusedError, match="busy"):
        share.require(100_000)
    share.give(700_000)
    share.require(100_000)


def test_who_has_no_name_is_not_counted() -> None:
    share = Shares(IngestConfig(pending_messages_max=16)).of("")
    for _ in range(100):
        share.require(10)
        share.take(10)
    share.give(10)


def test_a_turn_ends_where_messages_go_on_and_on() -> None:
    turn, now_s = QueueTurn(), 50.0
    assert not turn.is_over(9, now_s)
    assert not turn.is_over(8, now_s + TURN_S / 2)
    assert turn.is_over(7, now_s + 1.1 * TURN_S)
    assert not turn.is_over(6, now_s + 1.2 * TURN_S)  # the next one
    assert turn.is_over(5, now_s + 2.5 * TURN_S)


def test_what_comes_together_after_a_pause_is_in_one_turn() -> None:
    turn = QueueTurn()
    assert not turn.is_over(1, 1.0)
    assert not turn.is_over(0, 1.0 + TURN_S / 2)
    assert not any(turn.is_over(waiting, 9.0) for waiting in (2, 1, 0))


def test_one_note_stands_for_all_that_was_refused_since_the_last() -> None:
    floods = Floods()
    floods.refuse("rude", 1)
    assert floods.note_due("rude", 5.0) == 1
    floods.refuse("rude", 3)
    assert floods.note_due("rude", 5.0 + NOTE_EVERY_S / 2) == 0
    floods.refuse("other", 1)
    assert floods.note_due("other", 5.0 + NOTE_EVERY_S / 2) == 1
    floods.refuse("rude", 2)
    assert floods.note_due("rude", 5.0 + 2 * NOTE_EVERY_S) == 5
    floods.note_cut("rude")
    assert floods.as_json() == {"refused": {"rude": 6, "other": 1}, "cut": {"rude": 1}}

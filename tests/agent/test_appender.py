"""The appender in examples: where it begins, how much is under way, what it passes over."""

from __future__ import annotations

import pytest

from backhaul_agent.ledger.sequence_offsets import STEPS_MAX, OffsetStep, SequenceOffsets
from backhaul_agent.uplink.appender import Appender, AppenderState, AppendTurn, Limits, Tail

EPOCH = 7
LIMITS = Limits(window_messages=4, window_bytes=1000, outstanding_bytes=10_000, answer_s=5.0)
SIZE = 100
RESERVED = 3


def appender(last_seq: int = 100, limits: Limits = LIMITS, *, watermark: int = 0) -> Appender:
    made = Appender(EPOCH, limits, opened_seq=last_seq)
    made.committed(last_seq)
    made.set_watermark(watermark)
    made.connected()
    return made


def seek(it: Appender, tail: Tail, created: str = "a") -> None:
    it.sought(tail, it.start(tail, created), [])


def running(last_seq: int = 100, limits: Limits = LIMITS) -> Appender:
    made = appender(last_seq, limits)
    seek(made, Tail(0))
    return made


def next_new(it: Appender) -> int | None:
    return it.next_seq if it.turn(asked=False) is AppendTurn.NEW else None


def test_continues_after_the_tail_of_its_own_epoch() -> None:
    it = appender(10)
    seek(it, Tail(42, EPOCH, 6))
    assert next_new(it) == 7
    assert it.send(7, 100, 0.0) == 42


def test_starts_after_the_watermark_where_the_stream_is_of_another_epoch() -> None:
    it = appender(10, watermark=4)
    seek(it, Tail(42, EPOCH + 1, 9))
    assert next_new(it) == 5
    assert it.send(5, 100, 0.0) == 42


@pytest.mark.parametrize("tail", [Tail(42, EPOCH, 11), Tail(42, stranger=99), Tail(0)])
def test_halts_where_others_know_seqs_this_ledger_never_gave_out(tail: Tail) -> None:
    """A ledger restored from a backup would give known identities to new points."""
    it = appender(10, watermark=0 if tail.stream_seq else 11)
    seek(it, tail)
    assert it.state is AppenderState.BEHIND
    assert it.turn(asked=True) is None
    assert not it.done


def test_a_stream_that_went_back_is_whole_once_what_it_falls_short_of_is_stored() -> None:
    """The hub may hold all of it: what follows must not get sequences that the hub has passed."""
    it = Appender(
        EPOCH, LIMITS, opened_seq=3, used_seq=3, steps=SequenceOffsets("a", [OffsetStep(0, 0)])
    )
    it.committed(3)
    it.set_watermark(3)
    it.connected()
    seek(it, Tail(1))
    assert (it.done, it.gap_free, it.again) == (True, False, 2)
    for _ in range(2):
        assert it.turn(asked=True) is AppendTurn.AGAIN
        it.send_again(SIZE, 0.0)
    it.answered(it.generation, 2)
    assert not it.gap_free
    it.answered(it.generation, 3)
    assert it.gap_free


def test_nobody_can_know_a_seq_that_was_not_given_out() -> None:
    """A receipt may explain a seq that was never sent, a mark may name one that still waits."""
    it = running(last_seq=10)
    it.committed(20, 30)
    it.set_watermark(30)
    seek(it, Tail(0))
    assert it.done
    it.set_watermark(31)
    assert (it.state, it.watermark, it.claimed) == (AppenderState.BEHIND, 30, 31)
    it.disconnected()
    it.connected()
    assert it.turn(asked=True) is None


def test_window_closes_by_messages_and_by_bytes() -> None:
    it = running()
    for seq in range(1, 5):
        assert next_new(it) == seq
        it.send(seq, 100, 0.0)
    assert next_new(it) is None
    it.answered(it.generation, 2)
    assert next_new(it) == 5
    it.send(5, 1000, 0.0)
    assert next_new(it) is None


def test_stops_before_discard_old_could_reach_what_the_hub_lacks() -> None:
    it = running(limits=Limits(1000, 1 << 30, outstanding_bytes=1000))
    sent = 0
    while (seq := next_new(it)) is not None:
        it.send(seq, 100, 0.0)
        sent += 1
    assert sent == 10
    assert it.stalled_by_hub
    assert it.turn(asked=True) is AppendTurn.RUN, "the hub may wait for just that"
    it.answered(it.generation, 10)
    it.set_watermark(10)
    assert next_new(it) == 11


def test_a_trickle_whose_newest_message_is_never_confirmed_owes_no_more_than_that() -> None:
    """A lane that is pushed is woken where it owes much: on a long link the hub's word is always a little behind."""
    it = running(last_seq=1000)
    for seq in range(1, 1000):
        stream_seq = it.send(seq, 100, 0.0) + 1
        it.answered(it.generation, stream_seq)
        it.set_watermark(max(0, seq - 2))
        assert it.outstanding_bytes <= 200


def test_bytes_owed_are_remembered_in_few_parts_however_many_messages_owe_them() -> None:
    it = running(last_seq=100_000, limits=Limits(1 << 30, 1 << 40, outstanding_bytes=1 << 40))
    for seq in range(1, 100_001):
        it.answered(it.generation, it.send(seq, 100, 0.0) + 1)
    assert len(it._buckets) < 1000
    assert it.outstanding_bytes == 10_000_000
    it.set_watermark(50_000)
    assert abs(it.outstanding_bytes - 5_000_000) < 200_000


def test_an_overdue_answer_makes_it_look_at_the_tail_again() -> None:
    it = running()
    it.send(1, 100, 50.0)
    it.tick(54.9)
    assert it.answer_due_s() == 55.0
    it.tick(55.0)
    assert it.answer_due_s() is None
    assert it.state is AppenderState.SEEKING


def test_answers_to_an_earlier_window_change_nothing() -> None:
    it = running()
    old = it.generation
    it.send(1, 100, 0.0)
    it.refused(old)
    seek(it, Tail(0))
    it.send(1, 100, 0.0)
    it.answered(old, 1)
    assert it.appended == 0
    it.refused(old)
    assert next_new(it) == 2


def test_a_leaf_rolled_back_behind_the_watermark_gets_only_what_the_hub_lacks() -> None:
    it = appender(10, watermark=8)
    seek(it, Tail(6, EPOCH, 6))
    assert next_new(it) == 9


def test_a_watermark_past_what_was_sent_passes_over_what_may_be_forgotten() -> None:
    it = running(last_seq=10)
    it.set_watermark(6)
    assert next_new(it) is None
    seek(it, Tail(0))
    assert next_new(it) == 7
    assert it.appended == 6


def test_a_watermark_that_rises_while_the_tail_is_read_counts() -> None:
    it = appender(10)
    start = it.start(Tail(0), "a")
    it.set_watermark(6)
    it.sought(Tail(0), start, [])
    assert it.state is AppenderState.SEEKING


def test_a_lower_watermark_moves_nothing_but_itself() -> None:
    """What the hub lost it asks for again; what was appended was appended."""
    it = running(last_seq=10)
    for seq in range(1, 5):
        it.send(seq, 100, 0.0)
    it.answered(it.generation, 4)
    it.set_watermark(4)
    it.set_watermark(1)
    assert (it.watermark, it.confirmed, it.outstanding_bytes) == (1, 4, 0)
    assert next_new(it) == 5


def test_a_tail_read_on_a_connection_that_is_gone_is_of_no_interest() -> None:
    it = running()
    it.disconnected()
    seek(it, Tail(0))
    assert it.turn(asked=True) is None


def test_runs_and_new_messages_take_turns() -> None:
    it = running(limits=Limits(window_messages=1000))
    order = []
    for _ in range(3):
        for _ in range(4):
            if it.turn(asked=True) is AppendTurn.RUN:
                it.begin_run(3)
            if it.turn(asked=True) is AppendTurn.AGAIN:
                it.send_again(10, 0.0)
                order.append("again")
            else:
                it.send(it.next_seq, 10, 0.0)
                order.append("new")
    assert order == (["again"] * 3 + ["new"] * 3) * 2
    it.committed(100)
    while (seq := next_new(it)) is not None:
        it.send(seq, 10, 0.0)
    assert it.turn(asked=True) is AppendTurn.RUN, "nothing new: no turn to wait for"


def test_steps_keep_what_later_messages_may_have_had() -> None:
    steps = (
        SequenceOffsets()
        .with_step("a", OffsetStep(0, 0))
        .with_step("a", OffsetStep(10, 5))
        .with_step("a", OffsetStep(20, 2))
    )
    assert [steps.bound(seq) for seq in (0, 9, 10, 19, 20, 99)] == [5, 5, 5, 5, 2, 2]
    assert steps.last == 2
    assert steps.with_step("a", OffsetStep(10, 7)).steps == [OffsetStep(0, 0), OffsetStep(10, 7)]
    assert steps.with_step("b", OffsetStep(3, 1)) == SequenceOffsets("b", [OffsetStep(3, 1)])


def test_many_steps_become_fewer_and_never_a_lower_bound() -> None:
    steps = SequenceOffsets()
    offsets = [(seq, (seq * 7) % 13) for seq in range(3 * STEPS_MAX)]
    for seq, offset in offsets:
        steps = steps.with_step("a", OffsetStep(seq, offset))
    assert len(steps.steps) == STEPS_MAX
    for seq, offset in offsets:
        assert steps.bound(seq) >= max(each for at, each in offsets if at >= seq) >= offset

"""The appender against a model of an OUT stream, with everything dying at every moment.

Modelled: appends in flight on one connection arrive in order or are cut off; answers get lost; an
old connection's appends arrive after a new one has read the tail; the agent restarts and forgets
everything but the ledger; the leaf's store is wiped; rows of the ledger are quarantined; the
watermark rises, late. Not covered: a leaf store rolled back to an older state (the hub's part).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from backhaul_agent.appender import Appender, Limits, State, Tail

EPOCH = 7
LIMITS = Limits(window_messages=4, window_bytes=1000, outstanding_bytes=10_000, answer_s=5.0)


@dataclass
class Stream:
    """What the server does with appends: stores one only if its expectation holds."""

    stored: list[int] = field(default_factory=list)

    def append(self, seq: int, expected: int) -> bool:
        if expected != len(self.stored):
            return False
        self.stored.append(seq)
        return True

    def tail(self) -> Tail:
        if not self.stored:
            return Tail(0)
        return Tail(len(self.stored), EPOCH, self.stored[-1])


@dataclass
class Connection:
    """Appends on their way, in order: (generation, seq, expected)."""

    flying: list[tuple[int, int, int]] = field(default_factory=list)


class AppenderMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.stream = Stream()
        self.ledger: list[int] = []
        self.quarantined: set[int] = set()
        self.at_hub: set[int] = set()
        self.watermark = 0
        self.now_s = 0.0
        self.connection = Connection()
        self.old: list[Connection] = []
        self.answers: list[tuple[int, int, bool]] = []
        self.start_agent()

    def start_agent(self) -> None:
        self.appender = Appender(EPOCH, LIMITS)
        self.appender.committed(len(self.ledger))
        self.appender.raise_watermark(self.watermark)

    @rule(count=st.integers(1, 5))
    def commit(self, count: int) -> None:
        self.ledger += range(len(self.ledger) + 1, len(self.ledger) + count + 1)
        self.appender.committed(len(self.ledger))

    @precondition(lambda self: self.appender.state is State.DOWN)
    @rule()
    def connect(self) -> None:
        self.appender.connected()

    @precondition(lambda self: self.appender.state is State.SEEKING)
    @rule()
    def seek(self) -> None:
        tail = self.stream.tail()
        start = self.appender.start_of(tail)
        sizes = [(seq, 100) for seq in range(self.watermark + 1, start + 1)]
        self.appender.sought(tail, sizes)

    @rule(corrupt=st.booleans())
    def send(self, corrupt: bool) -> None:
        while (seq := self.appender.next_seq()) is not None:
            if seq in self.quarantined or (corrupt and seq not in self.stream.stored):
                self.quarantined.add(seq)
                self.appender.skip(seq)
                continue
            expected = self.appender.send(seq, 100, self.now_s)
            self.connection.flying.append((self.appender.generation, seq, expected))
            if corrupt:
                return

    @rule(count=st.integers(1, 4), lose_answers=st.booleans())
    def deliver(self, count: int, lose_answers: bool) -> None:
        self.arrive(self.connection, count, lose_answers)

    @precondition(lambda self: self.old)
    @rule(count=st.integers(1, 4))
    def deliver_late(self, count: int) -> None:
        connection = self.old[0]
        self.arrive(connection, count, lose_answers=True)
        if not connection.flying:
            self.old.pop(0)

    def arrive(self, connection: Connection, count: int, lose_answers: bool) -> None:
        arrived, connection.flying = connection.flying[:count], connection.flying[count:]
        for generation, seq, expected in arrived:
            stored = self.stream.append(seq, expected)
            if not lose_answers:
                self.answers.append((generation, seq, stored))

    @rule()
    def answer(self) -> None:
        for generation, seq, stored in self.answers:
            if stored:
                self.appender.answered(generation, seq)
            else:
                self.appender.refused(generation)
        self.answers = []

    @rule(seconds=st.floats(0, 6))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.appender.tick(self.now_s)

    @rule(crash=st.booleans(), cut_after=st.integers(0, 4))
    def drop_connection(self, crash: bool, cut_after: int) -> None:
        """The connection dies; some of what was in flight may still arrive, later."""
        self.connection.flying = self.connection.flying[:cut_after]
        if self.connection.flying:
            self.old.append(self.connection)
        self.connection = Connection()
        self.answers = []
        if crash:
            self.start_agent()
        else:
            self.appender.disconnected()

    @rule()
    def hub_reads(self) -> None:
        self.at_hub |= set(self.stream.stored)
        while self.watermark + 1 in self.at_hub | self.quarantined:
            self.watermark += 1
        self.appender.raise_watermark(self.watermark)

    @rule()
    def wipe_leaf(self) -> None:
        """The leaf dies and comes back empty; its connections die with it."""
        self.stream.stored.clear()
        self.old.clear()
        self.connection = Connection()
        self.answers = []
        self.appender.disconnected()

    @invariant()
    def nothing_twice_and_in_order(self) -> None:
        stored = self.stream.stored
        assert stored == sorted(set(stored))

    @invariant()
    def no_hole_that_is_not_explained(self) -> None:
        if self.stream.stored:
            span = range(self.stream.stored[0], self.stream.stored[-1] + 1)
            missing = set(span) - set(self.stream.stored) - self.quarantined
            assert all(seq <= self.watermark for seq in missing)

    @invariant()
    def what_counts_as_appended_is_there(self) -> None:
        claimed = set(range(self.watermark + 1, self.appender.appended + 1))
        if self.appender.state is State.RUNNING:
            assert claimed <= set(self.stream.stored) | self.quarantined

    @invariant()
    def the_window_is_bounded(self) -> None:
        assert len(self.appender._sent) <= LIMITS.window_messages

    def teardown(self) -> None:
        """Once everything stays up, everything arrives."""
        self.drop_connection(crash=False, cut_after=0)
        self.old.clear()
        for _ in range(4 * len(self.ledger) + 20):
            if self.appender.state is State.DOWN:
                self.connect()
            if self.appender.state is State.SEEKING:
                self.seek()
            self.send(corrupt=False)
            self.deliver(4, lose_answers=False)
            self.answer()
            self.hub_reads()
        there = set(self.stream.stored) | self.at_hub | self.quarantined
        assert there >= set(self.ledger)
        assert self.appender.done


TestAppenderMachine = AppenderMachine.TestCase
TestAppenderMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def running(last_seq: int = 100, limits: Limits = LIMITS) -> Appender:
    appender = Appender(EPOCH, limits)
    appender.committed(last_seq)
    appender.connected()
    appender.sought(Tail(0), [])
    return appender


def test_continues_after_the_tail_of_its_own_epoch() -> None:
    appender = Appender(EPOCH, LIMITS)
    appender.committed(10)
    appender.connected()
    appender.sought(Tail(42, EPOCH, 6), [])
    assert appender.next_seq() == 7
    assert appender.send(7, 100, 0.0) == 42


def test_starts_after_the_watermark_where_the_stream_is_of_another_epoch() -> None:
    appender = Appender(EPOCH, LIMITS)
    appender.committed(10)
    appender.raise_watermark(4)
    appender.connected()
    appender.sought(Tail(42, EPOCH + 1, 9), [])
    assert appender.next_seq() == 5
    assert appender.send(5, 100, 0.0) == 42


@pytest.mark.parametrize("tail", [Tail(42, EPOCH, 11), Tail(0)])
def test_halts_where_others_know_seqs_this_ledger_never_gave_out(tail: Tail) -> None:
    """A ledger restored from a backup would give known identities to new points."""
    appender = Appender(EPOCH, LIMITS)
    appender.committed(10)
    if tail.seq is None:
        appender.raise_watermark(11)
    appender.connected()
    appender.sought(tail, [])
    assert appender.state is State.BEHIND
    assert appender.next_seq() is None
    assert not appender.done


def test_window_closes_by_messages_and_by_bytes() -> None:
    appender = running()
    for seq in range(1, 5):
        assert appender.next_seq() == seq
        appender.send(seq, 100, 0.0)
    assert appender.next_seq() is None
    appender.answered(appender.generation, 2)
    assert appender.next_seq() == 5
    appender.send(5, 1000, 0.0)
    assert appender.next_seq() is None


def test_stops_before_discard_old_could_reach_what_the_hub_lacks() -> None:
    appender = running(limits=Limits(1000, 1 << 30, outstanding_bytes=1000))
    sent = 0
    while (seq := appender.next_seq()) is not None:
        appender.send(seq, 100, 0.0)
        sent += 1
    assert sent == 10
    assert appender.stalled_by_hub
    appender.answered(appender.generation, 10)
    appender.raise_watermark(10)
    assert appender.next_seq() == 11


def test_an_overdue_answer_makes_it_look_at_the_tail_again() -> None:
    appender = running()
    appender.send(1, 100, 50.0)
    appender.tick(54.9)
    assert appender.answer_due_s() == 55.0
    appender.tick(55.0)
    assert appender.answer_due_s() is None
    assert appender.state is State.SEEKING


def test_answers_to_an_earlier_window_change_nothing() -> None:
    appender = running()
    old = appender.generation
    appender.send(1, 100, 0.0)
    appender.refused(old)
    appender.sought(Tail(0), [])
    appender.send(1, 100, 0.0)
    appender.answered(old, 1)
    assert appender.appended == 0
    appender.refused(old)
    assert appender.next_seq() == 2


def test_a_leaf_rolled_back_behind_the_watermark_gets_only_what_the_hub_lacks() -> None:
    appender = Appender(EPOCH, LIMITS)
    appender.committed(10)
    appender.raise_watermark(8)
    appender.connected()
    appender.sought(Tail(6, EPOCH, 6), [])
    assert appender.next_seq() == 9


def test_a_claim_of_the_hub_while_running_halts_after_the_next_look() -> None:
    appender = running(last_seq=10)
    appender.raise_watermark(11)
    assert appender.next_seq() is None
    appender.sought(Tail(0), [])
    assert appender.state is State.BEHIND
    appender.connected()
    appender.sought(Tail(0), [])
    assert appender.state is State.BEHIND


def test_a_watermark_past_what_was_sent_passes_over_what_may_be_forgotten() -> None:
    appender = running(last_seq=10)
    appender.raise_watermark(6)
    assert appender.next_seq() == 7
    assert appender.appended == 6


def test_a_tail_read_on_a_connection_that_is_gone_is_of_no_interest() -> None:
    appender = running()
    appender.disconnected()
    appender.sought(Tail(0), [])
    assert appender.next_seq() is None

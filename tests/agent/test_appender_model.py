"""The appender against a model of an OUT stream and of the hub, with everything dying at any moment.

Modelled: appends in flight on one connection arrive in order or are cut off; answers get lost; an
old connection's appends arrive after a new one has read the tail; the agent restarts and forgets
everything but the ledger; the leaf's store is wiped, or rolled back to an older copy, whose sequences
the hub's source takes for old; the hub loses messages its source has passed, says so with a lower
watermark and asks for them again; rows of the ledger are quarantined, forgotten once confirmed;
foreign messages come in between. Not covered: the ledger rolled back (test_epochs); a foreign message
between appends on their way, which makes a hole that the hub asks for.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from backhaul_agent.ledger.sequence_offsets import OffsetStep, SequenceOffsets
from backhaul_agent.uplink.appender import Appender, AppenderState, AppendTurn, Limits
from backhaul_agent.uplink.resend import Resends, Work
from tests.agent.simple_out import EPOCH, Connection, Flying, Hub, Stream

pytestmark = pytest.mark.slow
LIMITS = Limits(window_messages=4, window_bytes=1000, outstanding_bytes=10_000, answer_s=5.0)
SIZE = 100
RESERVED = 3


class LaneMachine(RuleBasedStateMachine):
    """What uplink/lane.py does with its pure parts, without any I/O."""

    def __init__(self) -> None:
        super().__init__()
        self.stream = Stream()
        self.copies: list[Stream] = []
        self.hub = Hub()
        self.last_seq = 0
        self.quarantined: set[int] = set()
        self.forgotten = 0
        self.reserved = 0
        self.steps = SequenceOffsets()
        self.watermark = self.confirmed = 0
        self.now_s = 0.0
        self.connection = Connection()
        self.old: list[Connection] = []
        self.answers: list[tuple[int, int, bool]] = []
        self.start_agent()

    def start_agent(self) -> None:
        self.appender = Appender(
            EPOCH,
            LIMITS,
            opened_seq=self.last_seq,
            used_seq=min(self.last_seq, self.reserved),
            steps=self.steps,
        )
        self.appender.committed(self.last_seq)
        self.appender.set_watermark(self.confirmed)
        self.appender.set_watermark(self.watermark)
        self.resends = Resends()
        self.run: list[int] = []

    @rule(count=st.integers(1, 5))
    def commit(self, count: int) -> None:
        self.last_seq += count
        self.appender.committed(self.last_seq)

    @precondition(lambda self: self.appender.state is AppenderState.DOWN)
    @rule()
    def connect(self) -> None:
        self.appender.connected()

    @precondition(lambda self: self.appender.state is AppenderState.SEEKING)
    @rule()
    def seek(self) -> None:
        tail = self.stream.tail()
        start = self.appender.start(tail, str(self.stream.created))
        if start.short and not self.fill_with(start.short):
            self.jump(self.stream.last)
            return
        if start.new_stream:
            self.reserved = start.step.from_seq
        self.record(start.step)
        sizes = [(seq, SIZE) for seq in range(self.confirmed + 1, start.step.from_seq + 1)]
        self.appender.sought(tail, start, sizes)

    def jump(self, sequence: int) -> None:
        sequence, step = self.appender.jump(sequence)
        self.stream.purge(sequence + 1)
        self.steps, self.reserved = SequenceOffsets(), step.from_seq
        self.record(step)

    def fill_with(self, short: int) -> bool:
        return len(self.run) >= short

    def there(self, seq: int) -> bool:
        return self.forgotten < seq <= self.last_seq and seq not in self.quarantined

    def record(self, step: OffsetStep) -> None:
        self.steps = self.steps.with_step(str(self.stream.created), step)

    @rule(corrupt=st.booleans(), note=st.booleans())
    def send(self, corrupt: bool, note: bool) -> None:
        appender = self.appender
        while (turn := appender.turn(asked=self.resends.ready)) is not None:
            if turn is AppendTurn.RUN:
                self.begin_run()
            elif turn is AppendTurn.AGAIN:
                seq = self.run[-appender.again]
                expected = appender.send_again(SIZE, self.now_s)
                self.fly(seq, expected)
            else:
                seq = appender.next_seq
                assert seq > self.forgotten, "a forgotten row would be called missing"
                if not self.there(seq) or (corrupt and seq > self.hub.highest):
                    self.pass_over(seq)
                    continue
                if seq > self.reserved:
                    self.reserved = seq + RESERVED
                self.fly(seq, appender.send(seq, SIZE, self.now_s))
            if corrupt:
                break
        if note and appender.steps.created == str(self.stream.created):
            self.record(appender.steps.steps[-1])

    def pass_over(self, seq: int) -> None:
        self.quarantined.add(seq)
        self.hub.explained.add(seq)
        if self.appender.pass_over(seq):
            self.jump(self.appender.stream_seq)

    def begin_run(self) -> None:
        work = self.resends.next_run()
        rows = [seq for seq in range(work.lo, work.hi + 1) if self.there(seq)]
        if rows:
            self.run = rows
            self.record(self.appender.run_step(len(rows)))
            self.appender.begin_run(len(rows))
            last = self.appender.stream_seq + len(rows)
            self.resends.sent(work, len(rows), SIZE * len(rows), last, self.now_s)
        self.resends.took(work.hi)

    def fly(self, seq: int, expected: int) -> None:
        flying = Flying(self.appender.generation, seq, self.appender.position, expected)
        self.connection.flying.append(flying)

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
        for generation, seq, position, expected in arrived:
            stored = self.stream.append(seq, position, expected)
            if not lose_answers:
                self.answers.append((generation, expected + 1, stored))

    @rule()
    def answer(self) -> None:
        for generation, sequence, stored in self.answers:
            if stored:
                self.appender.answered(generation, sequence)
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

    @rule(count=st.integers(1, 8), note=st.booleans())
    def all_goes_well(self, count: int, note: bool) -> None:
        """A stretch without trouble: without it the long stories would never be told."""
        self.commit(count)
        for _ in range(6):
            self.go_on(note)

    def go_on(self, note: bool) -> None:
        if self.appender.state is AppenderState.DOWN:
            self.connect()
        if self.appender.state is AppenderState.SEEKING:
            self.seek()
        self.send(corrupt=False, note=note)
        self.deliver(4, lose_answers=False)
        self.answer()
        self.hub_reads()

    @rule()
    def hub_reads(self) -> None:
        self.hub.read(self.stream)

    @rule()
    def hub_speaks(self) -> None:
        self.watermark = self.hub.watermark
        self.confirmed = max(self.confirmed, self.watermark)
        self.appender.set_watermark(self.watermark)
        assert self.appender.state is not AppenderState.BEHIND
        self.resends.flowed(self.hub.passed, self.now_s)

    @rule()
    def hub_asks(self) -> None:
        holes = self.hub.accounted.holes(1, self.hub.highest)
        self.resends.begin(
            Work(EPOCH, lo, min(hi, self.appender.position))
            for lo, hi in holes
            if lo <= self.appender.position
        )
        # What was forgotten gets receipts.
        self.hub.explained |= {
            seq
            for lo, hi in holes
            for seq in range(lo, hi + 1)
            if not self.there(seq) and seq <= self.last_seq
        }

    @precondition(lambda self: self.hub.highest)
    @rule(data=st.data())
    def hub_loses(self, data: st.DataObject) -> None:
        low = data.draw(st.integers(1, self.hub.highest))
        high = data.draw(st.integers(low, self.hub.highest))
        self.hub.lose(low, high)

    @rule(count=st.integers(1, 8))
    def forget(self, count: int) -> None:
        self.forgotten = max(self.forgotten, min(self.watermark, self.forgotten + count))

    @precondition(lambda self: not self.connection.flying and not self.old)
    @precondition(lambda self: self.last_seq > self.watermark)
    @rule(data=st.data(), count=st.integers(1, 8))
    def evict(self, data: st.DataObject, count: int) -> None:
        """Room is needed: rows go that the hub has not confirmed; some may be in OUT."""
        first = data.draw(st.integers(self.watermark + 1, self.last_seq))
        gone = range(first, min(first + count, self.last_seq + 1))
        self.quarantined.update(gone)
        self.hub.explained.update(gone)

    @precondition(lambda self: self.appender.state is not AppenderState.RUNNING)
    @precondition(lambda self: not self.connection.flying and not self.old)
    @rule()
    def local_program_writes(self) -> None:
        self.stream.append(0, 0, self.stream.last)
        self.copies.clear()  # what the agent never saw it cannot make up for

    @rule()
    def wipe_leaf(self) -> None:
        """The leaf dies and comes back empty; its connections die with it."""
        self.stream = Stream(self.stream.created + 1)
        self.copies.clear()
        self.leaf_restarts()

    @rule()
    def copy_leaf(self) -> None:
        self.copies = [*self.copies[-3:], self.stream.copy()]

    @precondition(lambda self: self.copies)
    @rule(data=st.data(), crash=st.booleans())
    def roll_leaf_back(self, data: st.DataObject, crash: bool) -> None:
        """A power cut, or an older copy of the store put back."""
        copy = data.draw(st.sampled_from(self.copies))
        self.stream = copy.copy()
        self.copies = [known for known in self.copies if known.last <= copy.last]
        self.leaf_restarts()
        if crash:
            self.start_agent()

    def leaf_restarts(self) -> None:
        self.old.clear()
        self.connection = Connection()
        self.answers = []
        self.appender.disconnected()
        self.resends.lost()

    @invariant()
    def new_messages_come_in_order_and_once(self) -> None:
        new = [each.seq for each in self.stream.stored if each.seq == each.position > 0]
        # A repeat that fills up may be the message at the position itself.
        assert new == sorted(new)

    @invariant()
    def no_hole_that_is_not_explained(self) -> None:
        if stored := [each.seq for each in self.stream.stored if each.seq == each.position > 0]:
            missing = set(range(stored[0], stored[-1] + 1)) - set(stored) - self.quarantined
            assert all(seq <= self.confirmed for seq in missing)

    @invariant()
    def what_counts_as_appended_is_there(self) -> None:
        claimed = set(range(self.confirmed + 1, self.appender.appended + 1))
        if self.appender.state is AppenderState.RUNNING:
            there = {message.seq for message in self.stream.stored}
            assert claimed <= there | self.quarantined

    @invariant()
    def the_window_is_bounded(self) -> None:
        assert len(self.appender._sent) <= LIMITS.window_messages

    @invariant()
    def nothing_is_sent_beyond_what_is_recorded(self) -> None:
        """Else a store rolled back would give a sequence again that the hub has passed."""
        appender = self.appender
        if (
            appender.state is AppenderState.RUNNING
            and str(self.stream.created) == self.steps.created
        ):
            assert appender.offset <= self.steps.bound(appender.position)
            assert appender.used_seq <= self.reserved

    @invariant()
    def the_source_passes_over_nothing_it_never_had(self) -> None:
        """Sequences are not reused: nothing new stands under one that the hub has passed."""
        if self.stream.created == self.hub.created:
            passed = [each for each in self.stream.stored if each.sequence <= self.hub.passed]
            assert {each.seq for each in passed if each.seq} <= self.hub.ever

    def teardown(self) -> None:
        """Once everything stays up, the hub holds everything, or knows why not."""
        self.drop_connection(crash=False, cut_after=0)
        self.old.clear()
        self.commit(1)  # so that the hub knows of a loss at its end
        for turn in range(8 * self.last_seq + 40):
            self.go_on(note=True)
            self.hub_speaks()
            if turn % 8 == 0 and not self.resends.pending:
                self.hub_asks()
        assert self.hub.accounted.holes(1, self.last_seq) == []
        assert self.appender.done


TestLaneMachine = LaneMachine.TestCase
TestLaneMachine.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)

"""In which order a lane's messages go from the ledger to its OUT stream: a pure core, no I/O.

The agent is the stream's only writer, so it says with every append which sequence it expects to be
the last (`Nats-Expected-Last-Sequence`): the server stores a message only directly after its
predecessor. Appends are pipelined in a window. On any doubt (a refusal, a missing answer, a new
connection) the stream's own tail says where to go on: go back N. An append that was stored but whose
answer was lost is seen there and not repeated, and one that arrives late finds another last sequence
and is refused. So each message is stored exactly once, whatever dies at whatever moment.

What the hub asked for again (`uplink/resend.py`) goes the same way, in runs between the new messages. A
message that is appended again says in a header how far the new ones were, so that the tail still
tells the position.

If the leaf's store was wiped, or belongs to another epoch, appending starts after what the hub has
confirmed: everything up to there is at the hub, or it asks.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from backhaul_agent.ledger.sequence_offsets import OffsetStep, SequenceOffsets

if TYPE_CHECKING:
    from collections.abc import Iterable

BUCKET_BYTES = 64 * 1024
"""Bytes that the hub has not confirmed are remembered in parts of this size at most."""
BUCKETS = 64
"""And in so many parts at least. Of few messages each is one: a lane is pushed, or woken, by their bytes."""


class AppenderState(StrEnum):
    """The state of a lane's appender; part of the agent's status."""

    DOWN = "down"  # no connection
    SEEKING = "seeking"  # must read the stream's tail
    RUNNING = "running"
    BEHIND = "ledger_behind"  # others know seqs the ledger never gave out: a new epoch is due


class AppendTurn(StrEnum):
    """The next messages to append."""

    NEW = "new"  # the message `Appender.next_seq`
    AGAIN = "again"  # one more of the run that is being appended again
    RUN = "run"  # a run of what the hub asked for may begin


class Tail(NamedTuple):
    """The end of a stream: its last sequence, and the position that its last messages tell.

    ``epoch`` and ``seq`` are None where none of the last messages is of this ledger.
    ``stranger``: another ledger of this vehicle, a newer one, has written since.
    """

    stream_seq: int
    epoch: int | None = None
    seq: int | None = None
    stranger: int = 0


class Start(NamedTuple):
    """Where appending goes on in the stream ``created``: after ``step.from_seq``.

    ``short``: how many sequences the stream is behind that, to be used up by repeats.
    ``new_stream``: no sequence of it beyond was ever used.
    """

    created: str
    step: OffsetStep
    short: int = 0
    new_stream: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a lane: unanswered messages and bytes, bytes not confirmed, seconds."""

    window_messages: int = 256
    window_bytes: int = 1 << 20
    outstanding_bytes: int = 16 << 20
    answer_s: float = 5.0


class _Sent(NamedTuple):
    stream_seq: int
    position: int
    size: int
    sent_s: float


class Appender:
    """One lane's position in one epoch. Feed it the events; ask `turn` for the next messages.

    ``opened_seq``: the last seq of the ledger when it was opened. ``used_seq``: no seq beyond it had been sent by then. ``steps``: what is
    recorded of the stream. All three are the ledger's.
    """

    def __init__(
        self,
        epoch: int,
        limits: Limits,
        *,
        opened_seq: int = 0,
        used_seq: int = 0,
        steps: SequenceOffsets | None = None,
    ) -> None:
        self.epoch = epoch
        self.state = AppenderState.DOWN
        self.generation = 0  # of the window: answers to an earlier one are of no interest
        self.last_seq = 0  # the last that may be sent
        self.watermark = 0  # the hub's word; it may go down again
        self.confirmed = 0  # the highest watermark there has been
        self.appended = 0  # highest seq known to be in the stream (or confirmed)
        self.steps = steps or SequenceOffsets()  # upward steps: as recorded; downward ones at once
        self.used_seq = used_seq  # no seq beyond it was ever sent to this stream
        self.claimed = 0  # the highest seq that anybody says is of this epoch
        self.outstanding_bytes = 0
        self.stream_seq = 0  # the sequence that the last message sent has, once it is stored
        self.again = 0  # messages to be appended again before the next new one
        self._known_seq = opened_seq  # nobody can know one that was not given out
        self._limits = limits
        self._position = 0  # highest seq sent, or passed over
        self._turns_due = 0  # new messages that go before the next run
        self._whole_from = 0  # up to here the stream's sequences were used before it went back
        self._sent: deque[_Sent] = deque()
        self._sent_bytes = 0
        self._buckets: deque[tuple[int, int]] = deque()

    def connected(self) -> None:
        """Note a new connection: the tail must be read before anything is appended."""
        self._doubt()

    def disconnected(self) -> None:
        """Note that the connection is gone, and with it every answer still awaited."""
        self._doubt()
        if self.state is not AppenderState.BEHIND:
            self.state = AppenderState.DOWN

    def committed(self, ready_seq: int, last_seq: int = 0) -> None:
        """Note how far the ledger goes: the last seq that may leave, and the last given out."""
        self.last_seq = max(self.last_seq, ready_seq)
        self._known_seq = max(self._known_seq, ready_seq, last_seq)

    def set_watermark(self, seq: int) -> None:
        """Note up to where the hub holds everything; less than before where it lost something.

        What it lost it asks for again; the position and what counts as outstanding stay.
        """
        if self.claim(seq):
            return
        self.watermark = seq
        self.confirmed = max(self.confirmed, seq)
        if self.state is AppenderState.RUNNING and self._position < self.confirmed:
            # A wiped leaf made us start over further back than needed; those rows may be gone.
            self._doubt()
        self._drop_confirmed()

    def claim(self, seq: int) -> bool:
        """Note that somebody knows ``seq`` of this epoch; return whether that cannot be.

        Then the ledger is an old copy: whatever it appended would pass for what the hub has.
        """
        self.claimed = max(self.claimed, seq)
        if seq <= self._known_seq:
            return False
        self._clear_window()
        self.state = AppenderState.BEHIND
        return True

    def start(self, tail: Tail, created: str) -> Start:
        """Return where appending goes on, given the tail of the stream ``created``."""
        seq = self.confirmed
        if tail.epoch == self.epoch and tail.seq is not None:
            seq = max(tail.seq, seq)
        # Only the same stream can have gone back in time: the hub knows one that was made anew by
        # its identity and reads it from its start.
        new = created != self.steps.created
        short = 0 if new else self._short(seq, tail.stream_seq)
        return Start(created, OffsetStep(seq, tail.stream_seq + short - seq), short, new)

    def sought(self, tail: Tail, start: Start, outstanding: Iterable[tuple[int, int]]) -> None:
        """Go on after the tail that was read; first its missing messages are appended again.

        The start's step is recorded.

        ``outstanding``: (last seq, bytes) of runs of messages, from `confirmed` to there.
        """
        if self.state is not AppenderState.SEEKING or start.step.from_seq < self.confirmed:
            return  # the connection went, or the watermark rose, while the tail was being read
        if tail.stranger:
            self.state = AppenderState.BEHIND
        if self.state is AppenderState.BEHIND or self.claim(start.step.from_seq):
            return
        self._buckets = deque(outstanding)
        self.outstanding_bytes = sum(size for _, size in self._buckets)
        self._drop_confirmed()  # the watermark may have risen while the sizes were read
        seq = self.appended = start.step.from_seq
        self._moved_to(seq)
        self.used_seq = seq if start.new_stream else self.used_seq
        self._step(start.created, start.step)
        self.stream_seq = tail.stream_seq
        self.again = start.short
        self._whole_from = self.stream_seq + self.again
        self.state = AppenderState.RUNNING

    @property
    def position(self) -> int:
        """Return the highest seq that was sent, or passed over."""
        return self._position

    @property
    def offset(self) -> int:
        """Return how far the stream's sequences are ahead now."""
        return self.stream_seq - self._position

    def turn(self, *, asked: bool) -> AppendTurn | None:
        """Return the next messages to append, or None while nothing may be sent.

        ``asked``: a run of what the hub asked for is ready. A run and as many new messages take
        turns. A run may also begin while the hub has too much to confirm: it may be waiting for
        just that.
        """
        if (
            self.state is not AppenderState.RUNNING
            or len(self._sent) >= self._limits.window_messages
            or self._sent_bytes >= self._limits.window_bytes
        ):
            return None
        if self.again:
            return AppendTurn.AGAIN
        new = self._position < self.last_seq and not self.stalled_by_hub
        if asked and not (new and self._turns_due):
            return AppendTurn.RUN
        return AppendTurn.NEW if new else None

    @property
    def next_seq(self) -> int:
        """Return the seq of the next new message."""
        return self._position + 1

    def run_step(self, messages: int) -> OffsetStep:
        """Return the step to be recorded before a run of so many messages."""
        return OffsetStep(self._position, self.offset + messages)

    def begin_run(self, messages: int) -> None:
        """Note that so many messages are appended again next; their step is recorded."""
        self._step(self.steps.created, self.run_step(messages))
        self.again = self._turns_due = messages

    @property
    def confirmed_position(self) -> int | None:
        """Return the stream's sequence of the last confirmed message; None where a later step makes that unsure."""
        if self.state is not AppenderState.RUNNING or self._sent or self.again:
            return None
        if self.confirmed >= self._position:
            return self.stream_seq
        last = self.steps.steps[-1].from_seq if self.steps.steps else 0
        return self.confirmed + self.offset if last <= self.confirmed else None

    @property
    def stalled_by_hub(self) -> bool:
        """Whether the stream holds as much as it may until the hub confirms some of it."""
        return self.outstanding_bytes >= self._limits.outstanding_bytes

    @property
    def done(self) -> bool:
        """Whether everything committed is known to be in the stream."""
        return self.state is AppenderState.RUNNING and self.appended >= self.last_seq

    @property
    def gap_free(self) -> bool:
        """Whether no sequence is left that the stream has had, and does not have any more."""
        return self.stream_seq - len(self._sent) >= self._whole_from

    def pass_over(self, seq: int) -> int:
        """Pass over the seqs up to ``seq``: they will never be sent (quarantined, evicted).

        Returns how many sequences must be used up by repeats now, because those seqs may have
        been sent before under sequences that the hub has passed.
        """
        self._moved_to(seq)
        if not self._sent:
            self.appended = seq
        self.again = self._short(seq, self.stream_seq)
        self._whole_from = self.stream_seq + self.again
        self._step(self.steps.created, OffsetStep(seq, self.offset + self.again))
        return self.again

    def jump(self, stream_seq: int) -> tuple[int, OffsetStep]:
        """Give up a stream that ends with ``stream_seq``: it is to be emptied, and its tail read.

        Returns the sequence to go on after, beyond all that were ever used, and the step that
        this makes. All that the hub has not confirmed is appended again.
        """
        stream_seq += self._short(self.used_seq, stream_seq)
        step = OffsetStep(self.confirmed, stream_seq - self.confirmed)
        self.used_seq = self.confirmed
        self.steps = SequenceOffsets(self.steps.created, [step])
        self._doubt()
        return stream_seq, step

    def send(self, seq: int, size: int, now_s: float) -> int:
        """Note that the new message ``seq`` is being sent; return the last sequence to expect."""
        self._moved_to(seq)
        self.used_seq = max(self.used_seq, seq)
        self._turns_due = max(0, self._turns_due - 1)
        self._count(seq, size)
        return self._send(size, now_s)

    def send_again(self, size: int, now_s: float) -> int:
        """Note that a message is being sent again; return the last sequence to expect."""
        self.again -= 1
        return self._send(size, now_s)

    def answered(self, generation: int, stream_seq: int) -> None:
        """Note a message stored as ``stream_seq``; by the rule of expected sequences, all before too."""
        if generation != self.generation or self.state is not AppenderState.RUNNING:
            return
        while self._sent and self._sent[0].stream_seq <= stream_seq:
            sent = self._sent.popleft()
            self._sent_bytes -= sent.size
            self.appended = max(self.appended, sent.position)
        if not self._sent:
            self.appended = self._position

    def refused(self, generation: int) -> None:
        """Note that an append was refused: find out where the stream really ends."""
        if generation == self.generation and self.state is AppenderState.RUNNING:
            self._doubt()

    def answer_due_s(self) -> float | None:
        """Return when the oldest unanswered append counts as lost, on the monotonic clock."""
        if self.state is not AppenderState.RUNNING or not self._sent:
            return None
        return self._sent[0].sent_s + self._limits.answer_s

    def tick(self, now_s: float) -> None:
        """Doubt the window if its oldest answer is overdue."""
        due_s = self.answer_due_s()
        if due_s is not None and now_s >= due_s:
            self._doubt()

    def _short(self, seq: int, stream_seq: int) -> int:
        return self.steps.short(min(seq, self.used_seq), stream_seq)

    def _step(self, created: str, step: OffsetStep) -> None:
        if created != self.steps.created or step.offset != self.steps.last:
            self.steps = self.steps.with_step(created, step)

    def _moved_to(self, seq: int) -> None:
        self._position = seq
        self._known_seq = max(self._known_seq, seq)

    def _send(self, size: int, now_s: float) -> int:
        expected = self.stream_seq
        self.stream_seq += 1
        self._sent.append(_Sent(self.stream_seq, self._position, size, now_s))
        self._sent_bytes += size
        return expected

    def _drop_confirmed(self) -> None:
        while self._buckets and self._buckets[0][0] <= self.confirmed:
            self.outstanding_bytes -= self._buckets.popleft()[1]

    def _doubt(self) -> None:
        self._clear_window()
        if self.state is not AppenderState.BEHIND:
            self.state = AppenderState.SEEKING

    def _clear_window(self) -> None:
        self.generation += 1
        self._sent.clear()
        self._sent_bytes = 0

    def _count(self, seq: int, size: int) -> None:
        self.outstanding_bytes += size
        fineness = min(BUCKET_BYTES, self.outstanding_bytes // BUCKETS)
        if self._buckets and self._buckets[-1][1] < fineness:
            size += self._buckets.pop()[1]
        self._buckets.append((seq, size))

"""In which order a lane's messages go from the ledger to its OUT stream: a pure core, no I/O.

The agent is the stream's only writer, so it says with every append which sequence it expects to be
the last (`Nats-Expected-Last-Sequence`): the server stores a message only directly after its
predecessor. Appends are pipelined in a window. On any doubt (a refusal, a missing answer, a new
connection) the stream's own tail says where to go on: go back N. An append that was stored but whose
answer was lost is seen there and not repeated, and one that arrives late finds another last sequence
and is refused. So each message is stored exactly once, whatever dies at whatever moment.

If the leaf's store was wiped, or belongs to another epoch, appending starts after the watermark:
everything up to there is at the hub.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

BUCKET_BYTES = 64 * 1024  # how finely bytes above the watermark are remembered


class State(StrEnum):
    """What a lane's appender is doing; part of the agent's status."""

    DOWN = "down"  # no connection
    SEEKING = "seeking"  # must read the stream's tail
    RUNNING = "running"
    BEHIND = "ledger_behind"  # the stream holds seqs the ledger never gave out: halted


class Tail(NamedTuple):
    """The end of a stream: its last sequence, and what its last message of ours says (or None)."""

    stream_seq: int
    epoch: int | None = None
    seq: int | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a lane: unanswered messages and bytes, bytes above the watermark, seconds."""

    window_messages: int = 256
    window_bytes: int = 1 << 20
    outstanding_bytes: int = 16 << 20
    answer_s: float = 5.0


class _Sent(NamedTuple):
    seq: int
    size: int
    sent_s: float


class Appender:
    """One lane's position. Feed it what happened; ask `next_seq` what to append next."""

    def __init__(self, epoch: int, limits: Limits) -> None:
        self.state = State.DOWN
        self.generation = 0  # of the window: answers to an earlier one are of no interest
        self.last_seq = 0
        self.watermark = 0
        self.appended = 0  # highest seq known to be in the stream (or below the watermark)
        self._epoch = epoch
        self._limits = limits
        self._claimed = 0  # highest seq the hub says it has
        self._position = 0  # highest seq sent
        self._stream_seq = 0  # the sequence the last sent message has, once stored
        self._sent: deque[_Sent] = deque()
        self._sent_bytes = 0
        self._buckets: deque[tuple[int, int]] = deque()
        self.outstanding_bytes = 0

    def connected(self) -> None:
        """Note a new connection: the tail must be read before anything is appended."""
        self._doubt()

    def disconnected(self) -> None:
        """Note that the connection is gone, and with it every answer still awaited."""
        self._doubt()
        self.state = State.DOWN

    def committed(self, last_seq: int) -> None:
        """Note how far the ledger goes."""
        self.last_seq = max(self.last_seq, last_seq)

    def raise_watermark(self, seq: int) -> None:
        """Note up to where the hub holds everything: those bytes are no longer outstanding."""
        self._claimed = max(self._claimed, seq)
        if seq > self.last_seq:
            self._doubt()
            return
        self.watermark = max(self.watermark, seq)
        if self.state is State.RUNNING and self._position < self.watermark:
            # A wiped leaf made us start over further back than needed; those rows may be gone.
            self.skip(self.watermark)
        self._drop_confirmed()

    def start_of(self, tail: Tail) -> int:
        """Return the seq after which appending goes on, given the stream's tail."""
        if tail.epoch == self._epoch and tail.seq is not None:
            return max(tail.seq, self.watermark)
        return self.watermark

    def least_stream_seq(self, tail: Tail, offset: int) -> int:
        """Return how far the stream's sequences must have gone before anything is appended.

        A store that a power cut rolled back would give out sequences again that the hub's source
        has passed, and the source would take what comes under them for old. Appending goes on at
        the same distance between seq and sequence as ever, or at a greater one.

        ``offset``: the greatest distance (stream sequence - seq) there has been on this lane.
        """
        return self.start_of(tail) + offset

    def sought(self, tail: Tail, outstanding: Iterable[tuple[int, int]]) -> None:
        """Go on after the tail that was read.

        ``outstanding``: (last seq, bytes) of runs of messages from the watermark to there.
        """
        if self.state is not State.SEEKING:
            return  # the connection went while the tail was being read
        start = self.start_of(tail)
        self._buckets = deque(outstanding)
        self.outstanding_bytes = sum(size for _, size in self._buckets)
        self._drop_confirmed()  # the watermark may have risen while the sizes were read
        if max(start, self._claimed) > self.last_seq:
            # The hub or the leaf knows seqs this ledger never gave out: it went back in time.
            # Whatever is appended now would pass for something the hub already has.
            self.state = State.BEHIND
            return
        self._position = self.appended = start
        self._stream_seq = tail.stream_seq
        self.state = State.RUNNING

    def next_seq(self) -> int | None:
        """Return the seq to append next, or None while nothing may be sent."""
        if (
            self.state is not State.RUNNING
            or self._position >= self.last_seq
            or len(self._sent) >= self._limits.window_messages
            or self._sent_bytes >= self._limits.window_bytes
            or self.outstanding_bytes >= self._limits.outstanding_bytes
        ):
            return None
        return self._position + 1

    @property
    def stalled_by_hub(self) -> bool:
        """Whether the stream holds as much as it may until the hub confirms some of it."""
        return self.outstanding_bytes >= self._limits.outstanding_bytes

    @property
    def done(self) -> bool:
        """Whether everything committed is known to be in the stream."""
        return self.state is State.RUNNING and self.appended >= self.last_seq

    def skip(self, seq: int) -> None:
        """Pass over a seq that will never be sent (quarantined)."""
        self._position = seq
        if not self._sent:
            self.appended = seq

    def send(self, seq: int, size: int, now_s: float) -> int:
        """Note that ``seq`` is being sent; return the last sequence to expect."""
        expected = self._stream_seq
        self._stream_seq += 1
        self._position = seq
        self._sent.append(_Sent(seq, size, now_s))
        self._sent_bytes += size
        self._count(seq, size)
        return expected

    def answered(self, generation: int, seq: int) -> None:
        """Note that ``seq`` is stored; by the rule of expected sequences, so is all before it."""
        if generation != self.generation or self.state is not State.RUNNING:
            return
        while self._sent and self._sent[0].seq <= seq:
            self._sent_bytes -= self._sent.popleft().size
        self.appended = max(self.appended, seq)
        if not self._sent:
            self.appended = self._position

    def refused(self, generation: int) -> None:
        """Note that an append was refused: find out where the stream really ends."""
        if generation == self.generation and self.state is State.RUNNING:
            self._doubt()

    def answer_due_s(self) -> float | None:
        """Return when the oldest unanswered append counts as lost, on the monotonic clock."""
        if self.state is not State.RUNNING or not self._sent:
            return None
        return self._sent[0].sent_s + self._limits.answer_s

    def tick(self, now_s: float) -> None:
        """Doubt the window if its oldest answer is overdue."""
        due_s = self.answer_due_s()
        if due_s is not None and now_s >= due_s:
            self._doubt()

    def _drop_confirmed(self) -> None:
        while self._buckets and self._buckets[0][0] <= self.watermark:
            self.outstanding_bytes -= self._buckets.popleft()[1]

    def _doubt(self) -> None:
        self._clear_window()
        self.state = State.SEEKING

    def _clear_window(self) -> None:
        self.generation += 1
        self._sent.clear()
        self._sent_bytes = 0

    def _count(self, seq: int, size: int) -> None:
        self.outstanding_bytes += size
        if self._buckets and self._buckets[-1][1] < BUCKET_BYTES:
            size += self._buckets.pop()[1]
        self._buckets.append((seq, size))

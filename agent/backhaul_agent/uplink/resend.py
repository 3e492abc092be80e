"""The hub's requests for messages again, and how many may be on their way: a pure core, no I/O.

The hub names holes: `s.resend.<lane>` {"epoch", "ranges", "id"}. The newest request replaces the one
before, and one that was seen (by its id) changes nothing: the hub decides when to ask again. What it
asks for again too early, while the copy is still on its way, is not sent a second time.

Copies are paced by the flow: a few at first, and more as long as the hub takes them within
`FAST_S`. So a reading made now never waits behind more than seconds of old ones, and copies never
push anything out of OUT that the hub still lacks.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
from msgspec import Meta

from backhaul_codec.ranges import RangeSet
from backhaul_codec.strict.json import JsonError, Reader

if TYPE_CHECKING:
    from collections.abc import Iterable

RANGES_MAX = 256
RUN_MESSAGES = 32
RUN_BYTES = 64 * 1024
ALLOWED_BYTES_MIN = 64 * 1024
ALLOWED_BYTES_MAX = 4 << 20
FAST_S = 2.0

Seq = Annotated[int, Meta(ge=1, lt=1 << 62)]


class ResendAsk(msgspec.Struct, frozen=True):
    """The hub's request for seqs of one lane in one epoch; inclusive ranges.

    ``machine``: which machine may say of what its ledger does not know that it is lost; "": none may, as
    several use this identity. None: a hub that does not tell them apart.
    """

    epoch: Annotated[int, Meta(ge=1, lt=1 << 32)]
    ranges: Annotated[tuple[tuple[Seq, Seq], ...], Meta(max_length=RANGES_MAX)]
    id: int | str
    machine: str | None = None


_read = Reader(ResendAsk).read


def read_ask(data: bytes) -> ResendAsk:
    """Return the request that a message holds.

    Raises:
        ValueError: it is none.
    """
    try:
        ask = _read(data)
    except JsonError as error:
        raise ValueError(f"no request to resend: {error}") from error
    if wrong := next(((lo, hi) for lo, hi in ask.ranges if lo > hi), None):
        raise ValueError(f"no request to resend: {wrong[0]}..{wrong[1]} is no range")
    return ask


class Work(NamedTuple):
    """Messages to be appended again, from the ledger.

    With ``stream_seq`` from the stream OUT itself, which holds ``lo`` under that sequence and the
    others directly behind it.
    """

    epoch: int
    lo: int
    hi: int
    stream_seq: int = 0

    def split(self, messages: int) -> tuple[Work, Work | None]:
        """Return the first so many messages of this, and the rest."""
        if self.hi - self.lo < messages:
            return self, None
        middle = self.lo + messages
        behind = self.stream_seq and self.stream_seq + messages
        return self._replace(hi=middle - 1), self._replace(lo=middle, stream_seq=behind)


class _Run(NamedTuple):
    """A run that was appended: where it ends in the stream, and how many of its messages were not pushed."""

    work: Work
    stream_seq: int
    size: int
    sent_s: float
    messages: int
    unpushed: int


class Resends:
    """The messages to append again on one lane, and those of them that the hub has not taken yet."""

    def __init__(self, allowed_bytes_max: int = ALLOWED_BYTES_MAX) -> None:
        self.messages = 0  # appended again so far
        self._allowed_max = max(ALLOWED_BYTES_MIN, min(ALLOWED_BYTES_MAX, allowed_bytes_max))
        self._allowed = ALLOWED_BYTES_MIN
        self._drains: deque[Work] = deque()
        self._asked: deque[Work] = deque()
        self._flying: deque[_Run] = deque()
        self._flying_bytes = 0

    @property
    def pending(self) -> bool:
        """Whether anything is still to be appended again."""
        return bool(self._drains or self._asked)

    @property
    def ready(self) -> bool:
        """Whether the next run may begin now."""
        return self.pending and self._flying_bytes < self._allowed

    @property
    def waits_for_flow(self) -> bool:
        """Whether the next run waits for the hub to take an earlier one."""
        return self.pending and not self.ready

    def begin(self, works: Iterable[Work]) -> None:
        """Take up a request; the rest of an older one is dropped."""
        self._asked = deque(works)

    def drain(self, work: Work) -> None:
        """Add messages of a former epoch that were never appended; no request replaces them."""
        self._drains.append(work)

    def next_run(self) -> Work:
        """Return the messages of the next run: at most RUN_MESSAGES."""
        return self._queue[0].split(RUN_MESSAGES)[0]

    def took(self, seq: int) -> None:
        """Note that everything up to ``seq`` of the front is appended, or never will be."""
        work = self._queue.popleft()
        if seq < work.hi:
            _, rest = work.split(seq - work.lo + 1)
            if rest is not None:
                self._queue.appendleft(rest)

    def sent(self, work: Work, messages: int, size: int, stream_seq: int, now_s: float) -> None:
        """Note that a run is on its way: ``size`` bytes, its last message as ``stream_seq``."""
        self.messages += messages
        self._flying.append(_Run(work, stream_seq, size, now_s, messages, messages))
        self._flying_bytes += size

    def flowed(self, stream_seq: int, now_s: float) -> None:
        """Note that the hub has taken everything up to ``stream_seq``; adapt to its speed."""
        took_s = 0.0
        landed = False
        while self._flying and self._flying[0].stream_seq <= stream_seq:
            run = self._flying.popleft()
            self._flying_bytes -= run.size
            took_s = max(took_s, now_s - run.sent_s)
            landed = True
        if landed and took_s > FAST_S:
            self._allowed = max(ALLOWED_BYTES_MIN, self._allowed // 2)
        elif landed and not self._flying:
            self._allowed = min(self._allowed_max, self._allowed * 2)

    def pushed(self, stream_seq: int) -> None:
        """Note that a copy went to the hub beside the stream, too.

        Once all of a run have, nobody waits for the stream to bring it: while its lane is pushed nothing reads that.
        """
        for at, run in enumerate(self._flying):
            if run.stream_seq - run.messages < stream_seq <= run.stream_seq:
                self._flying[at] = run = run._replace(unpushed=run.unpushed - 1)
                if run.unpushed == 0:
                    del self._flying[at]
                    self._flying_bytes -= run.size
                return

    @property
    def flying(self) -> bool:
        """Whether copies are on their way of which nobody knows that the hub has taken them."""
        return bool(self._flying)

    def lost(self) -> None:
        """Note that the stream has lost the messages on their way (wiped, rolled back, purged)."""
        self._flying.clear()
        self._flying_bytes = 0

    def not_flying(self, ask: ResendAsk) -> list[tuple[int, int]]:
        """Return the ranges of a request without those still on their way to the hub."""
        flying = RangeSet(
            (run.work.lo, run.work.hi) for run in self._flying if run.work.epoch == ask.epoch
        )
        asked = RangeSet(ask.ranges)
        return [hole for lo, hi in asked for hole in flying.holes(lo, hi)]

    @property
    def _queue(self) -> deque[Work]:
        return self._drains or self._asked

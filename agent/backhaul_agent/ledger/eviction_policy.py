"""The worth of each message when the ledger runs out of room, and the order of eviction: a pure core.

Events are worth more than configuration, that more than state, that more than telemetry. Above all
of them stands what the account itself rests on: a receipt that was given up would turn the gap that
it explains into silence.

What the hub has confirmed goes before anything else. After that the cheapest go, the oldest of them
first, and nothing goes for the sake of something cheaper: then the newcomer is refused instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from backhaul_agent.errors import Code, RefusedError
from backhaul_agent.ledger.rows import ROW_BYTES
from backhaul_codec.kinds import BY_PREFIX, POINT, SYSTEM, Worth, system_kind
from backhaul_codec.subjects import shared_subject

TELEMETRY, STATE, CONFIG, EVENT, ACCOUNT = Worth
CLASSES = ("telemetry", "state", "config", "events", "receipts")

# Above this part of the limit room is made; the rest lets what is already kept be framed, and
# receipts be written.
FULL_AT = 15 / 16
# At least this much goes at a time, so that receipts stay few beside what they explain.
STEP_BYTES_MIN = 256 * 1024
STEP_PARTS = 64
RECEIPT_BYTES = 400  # what a receipt costs in the ledger, about

_POINT_TOKENS = 3  # <node>.<type>.<key>


def class_of(subject: str) -> Worth:
    """Return the value class of a message by its leaf subject alone.

    A point of a node counts as state: whoever writes one as configuration says so. Edges, and
    frames of points that hold or fall as one, are configuration by what they are.
    """
    prefix, *rest = shared_subject(subject).split(".")
    kind = BY_PREFIX.get(prefix, SYSTEM)
    if kind is POINT and len(rest) != _POINT_TOKENS:
        return Worth.CONFIG
    if kind is SYSTEM and rest:
        return system_kind(rest[0]).worth
    return kind.worth


class Candidate(NamedTuple):
    """A message that may have to go. ``confirmed``: the hub holds it, no receipt is owed."""

    id: int
    lane: int
    seq: int
    bytes: int
    confirmed: bool = False

    @property
    def cost(self) -> int:
        """Return the bytes it takes in the ledger, about."""
        return self.bytes + ROW_BYTES


class SeqSpan(NamedTuple):
    """Consecutive seqs of a lane (its id) that go together and share a receipt."""

    lane: int
    lo: int
    hi: int


class Victims(NamedTuple):
    """The evictions of one transaction: rows by their ids, and the contents of their receipts."""

    ids: list[int]
    spans: list[SeqSpan]
    bytes: int


class Budget:
    """How full the ledger is, and which messages may still come in. Sizes in bytes.

    ``limit`` is ``bytes_max``, or less while the disk has no more to give (`shrink`).
    """

    def __init__(self, bytes_max: int, *, when_full: str = "evict") -> None:
        self.bytes_max = bytes_max
        self.limit = bytes_max
        self.evicts = when_full == "evict"
        self.disk = ""  # names the disk while it is full
        self._measured = 0
        self._grown = 0
        self._pressed = 0  # bytes that are about to come
        self._by_class = [0] * len(CLASSES)
        self._stuck = -1  # the highest class for which nothing more can go

    @property
    def used(self) -> int:
        """Return the bytes of disk in use, free pages and the WAL not counted."""
        return self._measured + self._grown

    @property
    def full(self) -> bool:
        """Whether room must be made."""
        return self.used + self._pressed > self.limit * FULL_AT

    @property
    def due(self) -> bool:
        """Whether it is time to measure again: full by the estimate, or grown a good deal."""
        return self.full or self._grown >= self.bytes_max // 256

    @property
    def step(self) -> int:
        """Return how much goes at a time, so that receipts stay few."""
        return max(self.limit // STEP_PARTS, min(self.limit // 4, STEP_BYTES_MIN))

    @property
    def excess(self) -> int:
        """Return how much must go until there is a step's room again; 0 where there is."""
        return max(0, self.used + self._pressed - int(self.limit * FULL_AT) + self.step)

    def grew(self, size: int) -> None:
        """Note an estimate of a commit's size."""
        self._grown += size

    def measured(self, used: int, by_class: Sequence[int]) -> None:
        """Note the ledger's size on disk, and the size of its messages of each class."""
        self._measured, self._grown = used, 0
        self._by_class = list(by_class)
        if not self.full:
            self._stuck = -1

    def press(self, size: int) -> None:
        """Count ``size`` bytes as there already, so that room is made for them; 0 ends it."""
        self._pressed = size

    def shrink(self, limit: int, disk: str) -> None:
        """Make do with ``limit`` bytes: the disk, which ``disk`` names, is full."""
        self.limit = min(self.bytes_max, limit)
        self.disk = disk

    def restore(self) -> None:
        """Use the whole budget again: there is space on the disk."""
        self.limit, self.disk = self.bytes_max, ""
        self._stuck = -1

    def stuck(self, value_class: int) -> None:
        """Note that nothing more can go for a newcomer of this class, though the ledger is full."""
        self._stuck = max(self._stuck, value_class)

    def refusal(self, value_class: int) -> RefusedError | None:
        """Return why a newcomer of this class cannot be kept, None where it can."""
        if not self.full:
            return None
        may_go = sum(self._by_class[: min(value_class, EVENT) + 1])
        if self.evicts and value_class > self._stuck and may_go >= self.limit // STEP_PARTS:
            return None
        reason = (
            f"nothing in it that the hub has not confirmed is worth less than {CLASSES[value_class]}"
            if self.evicts
            else 'the hub has confirmed none of it, and ledger.when_full is "refuse"'
        )
        if self.disk:
            text = f"{self.disk} is full; the ledger has {self.limit} bytes there, and {reason}"
            return RefusedError(Code.STORAGE, text)
        text = f"the ledger holds {self.used} of {self.limit} bytes, and {reason}"
        return RefusedError(Code.LEDGER_FULL, text)


def victims(
    candidates: Sequence[Candidate],
    present: Mapping[int, Sequence[int]],
    wanted: int,
    *,
    worthwhile: bool = True,
) -> Victims:
    """Return the candidates to evict, oldest first until ``wanted`` bytes are free.

    ``present``: for each lane, all seqs in order that the ledger has from the first to the last
    candidate; a seq that is not there any more does not part two that go. With ``worthwhile`` a
    run that would free less than its receipt costs stays.
    """
    ids = [candidate.id for candidate in candidates if candidate.confirmed]
    freed = sum(candidate.cost for candidate in candidates if candidate.confirmed)
    spans: list[SeqSpan] = []
    for run in sorted(_runs(candidates, present)):
        if worthwhile and sum(row.cost for row in run) <= RECEIPT_BYTES:
            continue
        going = []
        for row in run:
            if freed >= wanted:
                break
            going.append(row)
            freed += row.cost
        if going:
            ids += [row.id for row in going]
            spans.append(SeqSpan(going[0].lane, going[0].seq, going[-1].seq))
    return Victims(ids, spans, freed)


def _runs(
    candidates: Sequence[Candidate], present: Mapping[int, Sequence[int]]
) -> Iterator[list[Candidate]]:
    """Yield the candidates that follow one another in a lane, with nothing between that stays."""
    for lane, seqs in present.items():
        going = {c.seq: c for c in candidates if c.lane == lane and not c.confirmed}
        for goes, run in groupby(seqs, key=going.__contains__):
            if goes:
                yield [going[seq] for seq in run]

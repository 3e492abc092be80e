"""How far a stream's sequences run ahead of the seqs in it, and where that has changed.

The hub's source takes whatever comes under a sequence that it has passed for old. So a store that a
power cut rolled back must not give a sequence to anything later than what stood there before: every
message must get the sequence it had, or a greater one (docs/adr/0007).

Appending is deterministic, so the sequence of a message follows from its seq: sequence = seq + offset,
and the offset changes only where something else is appended (a resent message: up by one) or a seq is
passed over (quarantined, evicted: down by one). Those places are the steps. A step upwards is durable
before anything is sent under it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

STEPS_MAX = 64


class OffsetStep(NamedTuple):
    """From the position ``from_seq`` on, a lane's sequences are at most ``offset`` ahead."""

    from_seq: int
    offset: int


@dataclass(slots=True)
class SequenceOffsets:
    """The steps of one stream, ascending. ``created`` says which stream: empty, none so far."""

    created: str = ""
    steps: list[OffsetStep] = field(default_factory=list)

    def bound(self, position: int) -> int:
        """Return the greatest offset that any message after ``position`` can have had.

        Seqs from 1 on were sent before the first step only where the older ones were merged, so
        the first step speaks for them too.
        """
        later = [step.offset for step in self.steps if step.from_seq > position]
        before = [step.offset for step in self.steps if step.from_seq <= position]
        return max([*before[-1:], *later], default=0)

    def short(self, position: int, stream_seq: int) -> int:
        """Return how many sequences may have been used after ``stream_seq``, where it ends.

        Not counting those that the messages after ``position`` had: they will have them again.
        """
        return max(0, position + self.bound(position) - stream_seq)

    @property
    def last(self) -> int | None:
        """Return the offset after the last step, None where there is none."""
        return self.steps[-1].offset if self.steps else None

    def with_step(self, created: str, step: OffsetStep) -> SequenceOffsets:
        """Return the steps once ``step`` is the last one.

        The caller has seen to it that no later message had a greater offset than its own. A few
        dozen steps are kept; what is older counts with the greatest offset there was.
        """
        if created != self.created:
            return SequenceOffsets(created, [step])
        kept = [known for known in self.steps if known.from_seq < step.from_seq]
        kept.append(step)
        while len(kept) > STEPS_MAX:
            first, second = kept[:2]
            kept[:2] = [OffsetStep(first.from_seq, max(first.offset, second.offset))]
        return SequenceOffsets(created, kept)

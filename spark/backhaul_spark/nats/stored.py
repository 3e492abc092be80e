"""A message as a stream holds it, and a stream's report on itself. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """The contents of a stream when asked. `created` identifies its incarnation."""

    name: str
    created: str
    first_seq: int
    last_seq: int
    messages: int
    bytes: int
    direct: bool = True
    replicas: int = 1


@dataclass(slots=True)
class Stored:
    """Messages as read, column by column, in stream order.

    `times` are RFC 3339 with up to nine decimals, as the server writes them; `subjects` the full
    subjects (text that is not UTF-8 has replacement characters).
    """

    seqs: list[int] = field(default_factory=list)
    subjects: list[str] = field(default_factory=list)
    times: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)


def holes(seqs: list[int], expected: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges missing before and between ascending `seqs`, which should begin at `expected`."""
    if seqs and seqs[-1] - expected + 1 == len(seqs):
        return
    for seq in seqs:
        if seq > expected:
            yield expected, seq - 1
        expected = seq + 1

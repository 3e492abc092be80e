"""Cut a micro-batch by its messages' expanded size; Spark counts messages only.

A point takes three bytes of a body before compression at the least, so that bounds the points of a batch
too, and a header says it: nothing is inflated. Pure; the data source brings the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from backhaul_codec import CodecError, peek

Read = Callable[[int, int], Iterable[tuple[int, bytes]]]
"""Yields those messages of a range that are there, in order: sequence and body."""

BATCH_BYTES = 256 << 20
LOOKS = 48


def last_within(lo: int, hi: int, size_max: int, read: Read) -> int:
    """Return up to which sequence of `lo` to `hi` the messages come to `size_max` bytes at most.

    One is read in any case. All are only weighed where a look at `LOOKS` of them says that it is needed:
    what hides between these is no more than comes to a batch or two.
    """
    count = hi - lo + 1
    if count > LOOKS and _about(lo, count, read) <= size_max:
        return hi
    size, last = 0, lo - 1
    for seq, body in read(lo, hi):
        size += _raw_len(body)
        if size > size_max and last >= lo:
            return last
        last = seq
    return hi


def _about(lo: int, count: int, read: Read) -> float:
    places = (lo + count * (2 * look + 1) // (2 * LOOKS) for look in range(LOOKS))
    return sum(_raw_len(body) for at in places for _, body in read(at, at)) / LOOKS * count


def _raw_len(body: bytes) -> int:
    try:
        return peek(body).raw_len
    except CodecError:
        return len(body)

"""Walk many CBOR bodies in step with numpy: the first item of each, then the second of each.

A tiny message costs Python more for its dozen items than for its points. In step they cost a few
numpy calls per item, however many bodies there are. A body that has anything unusual is merely left
out, for `cbor` to judge.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from backhaul_codec.bulk.frame_columns import Array, starts

_INFO = np.arange(32)
# Bytes after the first of a head, by its low five bits; 28 to 31 are no definite length.
_MORE_BYTES = np.where(_INFO < 24, 0, 1 << np.clip(_INFO - 24, 0, 3))
_SHIFTS = (64 - 8 * _MORE_BYTES).astype(np.uint64)
_LONGEST_HEAD = 9


class BodyWalk:
    """Hold where in each body its next item begins. Its methods read an item of some of the bodies.

    `good` tells of each body whether nothing unusual was met; `joined` and `flat` are all bodies,
    end to end, as offsets count them.

    Args:
        bodies: at least one.
    """

    def __init__(self, bodies: Sequence[bytes]) -> None:
        sizes = np.array([len(body) for body in bodies])
        self.joined = b"".join([*bodies, bytes(2 * _LONGEST_HEAD)])
        self.flat = np.frombuffer(self.joined, np.uint8)
        # The eight bytes from each offset on, as one number.
        self._words = np.ndarray(len(self.flat) - 7, ">u8", self.joined, strides=(1,))
        self.ends = np.cumsum(sizes)
        self.at = starts(sizes)
        self.good = np.ones(len(sizes), np.bool_)

    def turns(self, bodies: Array, counts: Array) -> list[Array]:
        """Return which bodies have a first item, a second, and so on."""
        return [bodies[counts > number] for number in range(int(counts.max(initial=0)))]

    def many(self, bodies: Array, major: int, most: int) -> Array:
        """Read the head of an array or map of at most `most`; return 0 for any other."""
        count = self.argument_of(bodies, major)
        self.require(bodies, count <= most)
        return np.where(self.good[bodies], count, 0).astype(np.int64)

    def content(self, bodies: Array, major: int) -> tuple[Array, Array]:
        """Pass over bytes or a text; return where the content starts, and its size."""
        return self.skip(bodies, self.argument_of(bodies, major))

    def skip(self, bodies: Array, size: Array) -> tuple[Array, Array]:
        """Pass over as many bytes; return where they start, and how many there were."""
        begin = self.at[bodies]
        room = (self.ends[bodies] - begin).astype(np.uint64)
        self.require(bodies, size <= room)
        kept = np.minimum(size, room).astype(np.int64)
        self.at[bodies] = begin + kept
        return begin, kept

    def argument_of(self, bodies: Array, major: int) -> Array:
        """Read the head of an item of one major type; return its argument."""
        found, argument = self.head(bodies)
        self.require(bodies, found == major)
        return argument

    def head(self, bodies: Array) -> tuple[Array, Array]:
        """Read the head of each body's next item: its major type and its argument."""
        at = self.at[bodies]
        first = self.flat[at]
        info = first & 31
        more = _MORE_BYTES[info]
        argument = np.where(more == 0, info, self._words[at + 1] >> _SHIFTS[info])
        end, most = at + 1 + more, self.ends[bodies]
        self.require(bodies, (end <= most) & (info < 28))
        self.at[bodies] = np.minimum(end, most)
        return first >> 5, argument

    def require(self, bodies: Array, condition: Array) -> None:
        """Leave out the bodies for which a condition does not hold."""
        self.good[bodies[~condition]] = False

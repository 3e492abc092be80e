"""Compute a message's size once each point is a row with a copy of its texts; no point is built.

A frame of 873 bytes can hold 2**18 points, and one of 138 kB texts that come to 64 MiB: whoever takes
messages from others counts what they come to, and not only what they weigh.
"""

from __future__ import annotations

from typing import NamedTuple

from backhaul_codec.wire.frame_layout import Layout, text_bytes

# A row's time, numbers and references to its names, roughly, wherever rows are kept.
ROW_BYTES = 64
# What an agent puts into one frame at most; a larger one of a program's it takes apart.
FRAME_POINTS_MAX = 10_000
FRAME_EXPANDED_MAX = 4 << 20
# A frame of an agent's is mostly 30 to 60 times as large once it is rows. Equal values pack better, but a
# frame is written when it has 250 points, or 32 KiB of texts: then it comes to no more than `HONEST_BYTES`.
HONEST_RATIO = 256
HONEST_BYTES = 64 << 10


class Expansion(NamedTuple):
    """Hold a message's expanded size: its points, and their rows with all texts, in bytes."""

    points: int
    size: int

    def beyond(self, sent: int) -> int:
        """Return by how many bytes that is more than `sent` bytes of an honest agent's come to."""
        return max(0, self.size - max(HONEST_BYTES, HONEST_RATIO * sent))


def expansion_of(layout: Layout) -> Expansion:
    """Return the expanded size of a proven frame."""
    return Expansion(layout.n, layout.n * ROW_BYTES + text_bytes(layout))


def expansion_of_point(sent: int) -> Expansion:
    """Return the expanded size of a point message of so many bytes."""
    return Expansion(1, ROW_BYTES + sent)

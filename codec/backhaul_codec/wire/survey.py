"""Say how many points a frame holds and when they were, without building one."""

from __future__ import annotations

from typing import NamedTuple

from backhaul_codec.errors import CodecError
from backhaul_codec.points import Header, Kind
from backhaul_codec.wire.envelope import unseal
from backhaul_codec.wire.expansion import expansion_of
from backhaul_codec.wire.frame_points import build_times
from backhaul_codec.wire.messages import read_frame


class Survey(NamedTuple):
    """Hold a frame's header, the number of its points, their earliest and latest time (ns).

    `clock` is what it says of the clock: 0 synced, 1 holdover, 2 unset. `size` is what its points come
    to as rows, with all texts, in bytes.
    """

    header: Header
    n: int
    t_lo: int
    t_hi: int
    clock: int
    size: int


def survey(message: bytes, *, node: str | None = None) -> Survey:
    """Prove a frame as `check` does, and return its contents' survey.

    A ledger keeps the times beside the message, so that history need not open what lies outside.
    Raises: CodecError; code `kind` for a point.
    """
    header, body = unseal(message)
    if header.kind is not Kind.FRAME:
        raise CodecError("a frame was expected, this is a point", "kind")
    layout = read_frame(body, node)
    times = build_times(layout)
    size = expansion_of(layout).size
    return Survey(header, layout.n, min(times), max(times), layout.clock, size)

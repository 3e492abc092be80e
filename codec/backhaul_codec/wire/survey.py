"""Say how many points a frame holds and when they were, without building one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from backhaul_codec.errors import CodecError
from backhaul_codec.wire.expansion import expansion_of
from backhaul_codec.wire.frame_points import build_times
from backhaul_codec.wire.messages import prove

if TYPE_CHECKING:
    from backhaul_codec.points import Header


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
    """Prove a frame or bundle as `check` does, and return its contents' survey.

    A ledger keeps the times beside the message, so that history need not open what lies outside.
    Raises: CodecError; code `kind` for a point.
    """
    header, layout = prove(message, node)
    if layout is None:
        raise CodecError(f"a frame was expected, this is a {header.kind.name.lower()}", "kind")
    times = build_times(layout)
    size = expansion_of(layout).size
    return Survey(header, layout.n, min(times), max(times), layout.clock, size)

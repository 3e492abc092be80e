"""Stamps that lie in the hub's future: refused where the newest time wins, else only counted.

A merge keeps what has the greatest time, so one stamp from next year would stand until next year,
whatever anybody writes. Such a point is refused and its vehicle told what time it is, to stamp it
again. A telemetry reading does no such harm: it is kept, and counted. All here is pure.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from backhaul_codec.subjects import edge_subject, point_subject

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from backhaul_codec.placed import Placed

SECOND_NS = 1_000_000_000


class Restamp(NamedTuple):
    """A message for DOWN: the vehicle writes this point again, with a stamp that can be."""

    subject: str
    body: bytes


class FutureRule:
    """How far ahead of the hub's now a stamp may lie: `max_future_skew_s`, of hub.toml [clock]."""

    def __init__(self, max_future_skew_s: float) -> None:
        self.skew_ns = round(max_future_skew_s * SECOND_NS)

    def ahead_ns(self, time_ns: int, now_ns: int) -> int:
        """Return by how much a stamp is too far ahead, 0 where it may be."""
        return max(0, time_ns - now_ns - self.skew_ns)

    def too_early(self, written: Iterable[Placed], now_ns: int) -> list[Placed]:
        """Return those points whose stamps lie too far ahead.

        Points that were written together count together or not at all: where this returns
        anything for a frame, the caller merges nothing of it, and sends `restamps` of all.
        """
        return [each for each in written if self.ahead_ns(each.point.time, now_ns)]


def restamps(device: str, refused: Sequence[Placed], now_ns: int) -> list[Restamp]:
    """Return what a device is told of points that were refused.

    The subject names the series, so DOWN keeps the newest refusal of each. The body has the stamp
    that was refused, to tell whether the vehicle still has that very point, and the hub's now.
    """
    return [
        Restamp(
            f"in.{device}.s.restamp.{_series(parent, point.node, point.type, point.key)}",
            json.dumps({"time": point.time, "now_ns": now_ns}, separators=(",", ":")).encode(),
        )
        for parent, point in refused
    ]


def _series(parent: str, node: str, type_: str, key: str) -> str:
    subject = edge_subject(parent, node, type_, key) if parent else point_subject(node, type_, key)
    return subject.removeprefix("p.")

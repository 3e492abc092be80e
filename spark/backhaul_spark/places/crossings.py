"""Fences that a vehicle enters, leaves and dwells in, fix by fix. Pure.

The edge of a fence is crossed once the vehicle has been on its other side for `fence_s`, so that jitter at the edge
crosses nothing. The crossing is at the first fix there; `before_ns` is the last one on the side before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from backhaul_spark.places.fixes import Fix
from backhaul_spark.places.settings import ns


class Fence(msgspec.Struct, frozen=True, kw_only=True):
    """A fence: a circle, or polygons with holes.

    Attributes:
        name: told in the table.
        dwell_s: how long a vehicle is inside until it is told as one that dwells.
        centre, radius_m: of a circle, (latitude, longitude) and metres.
        polygons: of each its rings of (longitude, latitude), the outer one first.
    """

    name: str
    dwell_s: float
    centre: tuple[float, float] | None = None
    radius_m: float = 0.0
    polygons: tuple[tuple[tuple[tuple[float, float], ...], ...], ...] = ()


class Crossing(msgspec.Struct, array_like=True):
    """Where a vehicle is by one fence: `other` is the first fix on the other side, and the last one before that."""

    inside: bool = False
    entered_ns: int = 0
    dwelt: bool = False
    other: tuple[Fix, int | None] | None = None


class Crossings(msgspec.Struct, array_like=True):
    """Where a vehicle is by all fences; by those that are not named it is outside."""

    fences: dict[str, Crossing] = {}
    last_ns: int | None = None

    def near(self) -> set[str]:
        """Return the fences that even a vehicle far from them has to be compared with."""
        return set(self.fences)

    def take(
        self,
        fixes: Sequence[Fix],
        inside: Iterable[tuple[Fence, Sequence[bool]]],
        confirm_s: float,
    ) -> list[dict[str, Any]]:
        """Add fixes; return the events that are certain now, as the table fences has them.

        Args:
            fixes: later than those before them.
            inside: of all fences that any of them is inside of, and of those in `near`: which fixes are.
            confirm_s: how long a vehicle is on the other side before it counts.
        """
        found: list[dict[str, Any]] = []
        for fence, sides in inside:
            crossing = self.fences.get(fence.name) or Crossing()
            before_ns = self.last_ns
            for fix, side in zip(fixes, sides, strict=True):
                found += _step(crossing, fence, fix, before_ns, side=side, confirm_ns=ns(confirm_s))
                before_ns = fix.time_ns
            if crossing.inside or crossing.other:
                self.fences[fence.name] = crossing
            else:
                self.fences.pop(fence.name, None)
        if fixes:
            self.last_ns = fixes[-1].time_ns
        self.fences = dict(sorted(self.fences.items()))
        return found


def _step(
    at: Crossing, fence: Fence, fix: Fix, before_ns: int | None, *, side: bool, confirm_ns: int
) -> list[dict[str, Any]]:
    found = []
    if side == at.inside:
        at.other = None
    else:
        at.other = at.other or (fix, before_ns)
        first, since_ns = at.other
        if fix.time_ns - first.time_ns >= confirm_ns:
            inside_ns = None if side else first.time_ns - at.entered_ns
            kind = "entered" if side else "left"
            found.append(_event(fence, kind, first, since_ns, inside_ns))
            at.inside, at.other, at.dwelt = side, None, False
            at.entered_ns = first.time_ns if side else 0
    if at.inside and side and not at.dwelt:
        inside_ns = fix.time_ns - at.entered_ns
        if inside_ns >= ns(fence.dwell_s):
            at.dwelt = True
            found.append(_event(fence, "dwelt", fix, before_ns, inside_ns))
    return found


def _event(
    fence: Fence, kind: str, fix: Fix, before_ns: int | None, inside_ns: int | None
) -> dict[str, Any]:
    return {
        "fence": fence.name,
        "kind": kind,
        "time_ns": fix.time_ns,
        "before_ns": before_ns,
        "lat": fix.lat,
        "lon": fix.lon,
        "inside_s": None if inside_ns is None else inside_ns / 1e9,
    }

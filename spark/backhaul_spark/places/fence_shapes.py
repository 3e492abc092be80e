"""Which fixes lie in which fence: circles by distance, polygons by shapely. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import shapely  # type: ignore[import-untyped]

from backhaul_spark.arrays import Flags, Floats
from backhaul_spark.places.crossings import Fence
from backhaul_spark.places.earth import chord_m, places
from backhaul_spark.places.fixes import Fix


class Shapes:
    """Fences made ready for many questions."""

    def __init__(self, fences: Sequence[Fence]) -> None:
        self._fences = [_Shape(fence) for fence in fences]

    def inside(self, fixes: Sequence[Fix], named: set[str]) -> list[tuple[Fence, Sequence[bool]]]:
        """Return fences, each with which of the fixes are inside; all that any is in, and those named.

        A corner, an edge, and what lies exactly at the radius is inside. Edges are straight in degrees.
        """
        if not fixes or not self._fences:
            return []
        lat = np.array([fix.lat for fix in fixes])
        lon = np.array([fix.lon for fix in fixes])
        xyz = np.array([(fix.x, fix.y, fix.z) for fix in fixes])
        found: list[tuple[Fence, Sequence[bool]]] = []
        # Most fences are far from where a vehicle was in an hour.
        middle = xyz.mean(axis=0)
        reach_m = float(np.sqrt(((xyz - middle) ** 2).sum(axis=1).max()))
        for shape in self._fences:
            far = shape.distance_m(middle) > reach_m
            sides = np.zeros(len(lat), bool) if far else shape.inside(lat, lon, xyz)
            if sides.any() or shape.fence.name in named:
                found.append((shape.fence, sides.tolist()))
        return found


class _Shape:
    """One fence."""

    def __init__(self, fence: Fence) -> None:
        self.fence = fence
        if fence.centre is None:
            self._parts = [(shapely.Polygon(r[0], r[1:]), r[0][0][0]) for r in fence.polygons]
            for part, _ in self._parts:
                shapely.prepare(part)

    @cached_property
    def _ball(self) -> tuple[Floats, float]:
        """A place, and how far from it (through the earth) the fence reaches at most."""
        fence = self.fence
        if fence.centre is not None:
            lat, lon = fence.centre
            return places(np.array([lat]), np.array([lon]))[0], chord_m(fence.radius_m)
        boxes = np.array([part.bounds for part, _ in self._parts])
        west, south = boxes[:, 0].min(), boxes[:, 1].min()
        east, north = boxes[:, 2].max(), boxes[:, 3].max()
        # An edge bends between its corners: so many places of the box, and as much again, hold it.
        lons, lats = np.meshgrid(np.linspace(west, east, 9), np.linspace(south, north, 9))
        box = places(lats.ravel(), lons.ravel())
        middle = box.mean(axis=0)
        return middle, 2 * float(np.sqrt(((box - middle) ** 2).sum(axis=1).max()))

    def distance_m(self, place: Floats) -> float:
        """Return how far away the fence is at least, through the earth."""
        middle, reach_m = self._ball
        return float(np.sqrt(((place - middle) ** 2).sum())) - reach_m

    def inside(self, lat: Floats, lon: Floats, xyz: Floats) -> Flags:
        """Return which places are inside, (n,) bool."""
        if self.fence.centre is not None:
            middle, reach_m = self._ball
            return np.asarray(((xyz - middle) ** 2).sum(axis=1) <= reach_m * reach_m)
        found = np.zeros(len(lat), bool)
        for part, west in self._parts:
            # As the polygon was unwound, so that one across 180 degrees has all of them.
            middle = west + (lon - west + 180.0) % 360.0 - 180.0
            bounds = part.bounds
            for turn in (-360.0, 0.0, 360.0):
                near = middle + turn
                if near.max() >= bounds[0] and near.min() <= bounds[2]:
                    found |= shapely.intersects_xy(part, near, lat)
        return found

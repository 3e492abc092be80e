"""Positions made of two series, and cleaned: no zero island, no jumps, no repeats. Pure.

Whatever is decided here follows from the readings in the order of their times, so it is the same however they came.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from backhaul_spark.arrays import Floats, Ints
from backhaul_spark.places.earth import Series, arc_m, places
from backhaul_spark.places.settings import PlacesSettings, ns

# Receivers without a fix say 0, 0; that is at sea.
ZERO_ISLAND_DEGREES = 0.01
# So many fixes in one another's reach, over `jump_s`, are the truth, and what was believed before is not.
JUMP_FIXES = 3
# And so many at most are kept while nobody knows.
DOUBTS_MAX = 600


class Fix(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A position at a time: ns since 1970, degrees, and metres from the middle of the earth."""

    time_ns: int
    lat: float
    lon: float
    x: float
    y: float
    z: float

    def metres(self, other: Fix) -> float:
        """Return the distance to another one on the ground."""
        x, y, z = self.x - other.x, self.y - other.y, self.z - other.z
        return arc_m((x * x + y * y + z * z) ** 0.5)


class Pairing(msgspec.Struct, array_like=True):
    """A latitude or a longitude that waits for the other: time in ns and degrees."""

    lat: tuple[int, float] | None = None
    lon: tuple[int, float] | None = None

    def take(self, lat: Series, lon: Series, settings: PlacesSettings) -> list[Fix]:
        """Return the fixes that these readings complete; each reading is in one at most.

        A fix has the later of its two times. Those that are no place on earth are left out. The readings are later than
        those before them.
        """
        (lat_ns, lats), (lon_ns, lons) = lat, lon
        lats, lons = lats * settings.degrees, lons * settings.degrees
        if self.lat or self.lon or not np.array_equal(lat_ns, lon_ns):
            told = (lat_ns, lats), (lon_ns, lons)
            lat_ns, lats, lons = self._paired(*told, ns(settings.pair_s))
        else:
            self.lat = self.lon = None
        there = (np.abs(lats) <= 90) & (np.abs(lons) <= 180)  # so NaN is none
        there &= (np.abs(lats) > ZERO_ISLAND_DEGREES) | (np.abs(lons) > ZERO_ISLAND_DEGREES)
        time_ns, lats, lons = lat_ns[there], lats[there], lons[there]
        xyz = places(lats, lons)
        columns = [each.tolist() for each in (time_ns, lats, lons, xyz[:, 0], xyz[:, 1], xyz[:, 2])]
        return [Fix(*row) for row in zip(*columns, strict=True)]

    def _paired(self, lat: Series, lon: Series, within_ns: int) -> tuple[Ints, Floats, Floats]:
        told: dict[int, list[float | None]] = {}
        for place, (times, values) in enumerate((lat, lon)):
            for time_ns, value in zip(times.tolist(), values.tolist(), strict=True):
                told.setdefault(time_ns, [None, None])[place] = value
        found: list[tuple[int, float, float]] = []
        for time_ns in sorted(told):
            north, east = told[time_ns]
            if north is not None:
                self.lat = time_ns, north
            if east is not None:
                self.lon = time_ns, east
            if self.lat and self.lon and abs(self.lat[0] - self.lon[0]) <= within_ns:
                found.append((time_ns, self.lat[1], self.lon[1]))
                self.lat = self.lon = None
        rows = list(zip(*found, strict=True)) or [(), (), ()]
        return np.array(rows[0], np.int64), np.array(rows[1], float), np.array(rows[2], float)


class Cleaning(msgspec.Struct, array_like=True):
    """The last fix that is believed, and those after it that are out of its reach."""

    good: Fix | None = None
    doubts: list[Fix] = []

    def take(self, fixes: Sequence[Fix], settings: PlacesSettings) -> list[tuple[Fix, bool]]:
        """Return the fixes that are believed, each with whether the vehicle was moved there unseen.

        A fix out of reach of the one before it is doubted: a jump of the receiver, or of a clock, mostly comes
        back. If the ones after it are in its reach for `jump_s`, they are believed and what was before is not.
        """
        found: list[tuple[Fix, bool]] = []
        for fix in fixes:
            if self.good is None or _reaches(self.good, fix, settings):
                found.append((fix, False))
                self.good, self.doubts = fix, []
                continue
            if not (self.doubts and _reaches(self.doubts[-1], fix, settings)):
                self.doubts = []
            self.doubts.append(fix)
            lasted = fix.time_ns - self.doubts[0].time_ns >= ns(settings.jump_s)
            if (lasted and len(self.doubts) >= JUMP_FIXES) or len(self.doubts) == DOUBTS_MAX:
                found += [(each, at == 0) for at, each in enumerate(self.doubts)]
                self.good, self.doubts = fix, []
        return found


def _reaches(a: Fix, b: Fix, settings: PlacesSettings) -> bool:
    reach_m = settings.noise_m + settings.speed_max_mps * (b.time_ns - a.time_ns) / 1e9
    return a.metres(b) <= reach_m

"""Distances on the WGS84 ellipsoid, by chords through it. Pure numpy.

A place is three numbers, metres from the middle of the earth. So neither the poles nor the meridian of 180 degrees
are special, and a distance needs no trigonometry of each pair. Against geodesics the error is below 1 in 10 million
up to 10 km, and below 1 in 50,000 up to 1,000 km.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np

from backhaul_spark.arrays import Floats, Ints

Series: TypeAlias = tuple[Ints, Floats]
"""Readings of one series: times (n,) in ns, ascending, each once, and values (n,)."""

RADIUS_M = 6_371_008.8
_EQUATOR_M = 6_378_137.0
_FLATTENING = 1 / 298.257223563
_E2 = _FLATTENING * (2 - _FLATTENING)


def places(lat: Floats, lon: Floats) -> Floats:
    """Return places (n, 3), float64 in metres, of latitudes and longitudes (n,) in degrees."""
    phi, lam = np.radians(lat), np.radians(lon)
    sin = np.sin(phi)
    normal = _EQUATOR_M / np.sqrt(1 - _E2 * sin * sin)
    flat = normal * np.cos(phi)
    return np.stack([flat * np.cos(lam), flat * np.sin(lam), normal * (1 - _E2) * sin], axis=1)


def arc_m(chord_m: float) -> float:
    """Return the distance on the ground of two places so far apart through it."""
    return 2 * RADIUS_M * math.asin(min(1.0, chord_m / (2 * RADIUS_M)))


def chord_m(distance_m: float) -> float:
    """Return how far apart through the earth places are that lie so far apart on the ground."""
    return 2 * RADIUS_M * math.sin(min(math.pi / 2, distance_m / (2 * RADIUS_M)))


def wrapped(degrees: float) -> float:
    """Return a longitude, or a difference of two, in -180 up to 180."""
    return (degrees + 180.0) % 360.0 - 180.0

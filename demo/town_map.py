"""The map of the made-up town as an operator would give it to the page: a PMTiles file with streets, land and river."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pmtiles.tile import Compression, TileType, zxy_to_tileid
from pmtiles.writer import write

from .town import BANKS, LAT, LON, METRES_A_DEGREE, Spot, streets
from .vector_tile import EXTENT, Shape, vector_tile

_ZOOM_MIN, _ZOOM_MAX = 9, 14
_REACH_M = 6000.0
_KINDS = {70: "highway", 50: "major_road", 30: "minor_road"}


def write_town(path: Path) -> None:
    """Write the map."""
    reach = _REACH_M / METRES_A_DEGREE
    bounds = {
        "min_lat_e7": LAT - reach,
        "min_lon_e7": LON - 2 * reach,
        "max_lat_e7": LAT + reach,
        "max_lon_e7": LON + 2 * reach,
    }
    corners = [_world(bounds[f"{end}_lat_e7"], bounds[f"{end}_lon_e7"]) for end in ("min", "max")]
    with write(str(path)) as writer:
        for zoom in range(_ZOOM_MIN, _ZOOM_MAX + 1):
            (left, bottom), (right, top) = ((x * 2**zoom, y * 2**zoom) for x, y in corners)
            for tile_id, x, y in sorted(
                (zxy_to_tileid(zoom, x, y), x, y)
                for x in range(int(left), int(right) + 1)
                for y in range(int(top), int(bottom) + 1)
            ):
                writer.write_tile(tile_id, _tile(zoom, x, y))
        header: dict[str, Any] = {name: int(degrees * 10**7) for name, degrees in bounds.items()}
        header |= {"tile_type": TileType.MVT, "tile_compression": Compression.NONE}
        header |= {"center_zoom": 13, "center_lon_e7": int(LON * 10**7)}
        header |= {"center_lat_e7": int(LAT * 10**7)}
        writer.finalize(header, {"attribution": "Streets: Talbruck, a made-up town"})


def _tile(zoom: int, x: int, y: int) -> bytes:
    def placed(spots: Sequence[Spot]) -> list[tuple[int, int]]:
        return [_in_tile(spot, zoom, x, y) for spot in spots]

    edges = (0, 0), (EXTENT, 0), (EXTENT, EXTENT), (0, EXTENT)
    roads = [
        Shape(placed(street.line), _KINDS[street.limit_kmh])
        for at_junction in streets()
        for street in at_junction
        if street.start < street.end
    ]
    return vector_tile(
        {
            "earth": [Shape(edges, "earth", closed=True)],
            "water": [Shape(_clockwise(placed(BANKS)), "river", closed=True)],
            "roads": [road for road in roads if _touches(road.points)],
        }
    )


def _in_tile(spot: Spot, zoom: int, x: int, y: int) -> tuple[int, int]:
    east, north = spot
    degree = METRES_A_DEGREE * math.cos(math.radians(LAT))
    at_x, at_y = _world(LAT + north / METRES_A_DEGREE, LON + east / degree)
    return round((at_x * 2**zoom - x) * EXTENT), round((at_y * 2**zoom - y) * EXTENT)


def _world(lat: float, lon: float) -> tuple[float, float]:
    """Return a place on the map of the world, from 0 to 1 in each direction, from its north-west corner."""
    return (lon + 180) / 360, (1 - math.asinh(math.tan(math.radians(lat))) / math.pi) / 2


def _clockwise(points: list[tuple[int, int]]) -> list[tuple[int, int]]:
    around = zip(points, points[1:] + points[:1], strict=True)
    area = sum(x * to_y - to_x * y for (x, y), (to_x, to_y) in around)
    return points if area > 0 else points[::-1]


def _touches(points: Sequence[tuple[int, int]], margin: int = EXTENT // 8) -> bool:
    def meets(at: Callable[[tuple[int, int]], int]) -> bool:
        return min(map(at, points)) < EXTENT + margin and max(map(at, points)) > -margin

    return meets(lambda point: point[0]) and meets(lambda point: point[1])

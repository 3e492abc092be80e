"""Small maps as an operator might have them: PMTiles with shapes by Protomaps' layers, or with pictures."""

from __future__ import annotations

import math
import struct
import zlib
from typing import TYPE_CHECKING

from pmtiles.tile import Compression, TileType, zxy_to_tileid
from pmtiles.writer import write

from demo.vector_tile import EXTENT, Shape, vector_tile

if TYPE_CHECKING:
    from pathlib import Path

WEST, SOUTH, EAST, NORTH = 8.0, 47.0, 13.0, 50.0
ZOOM_MAX = 8


def shapes_tile() -> bytes:
    """Return a tile with land everywhere, and water in its middle half."""
    layers = {"earth": (0, EXTENT), "water": (EXTENT // 4, 3 * EXTENT // 4)}
    return vector_tile({name: [_square(*ends)] for name, ends in layers.items()})


def png_tile(red: int, green: int, blue: int) -> bytes:
    """Return a picture of 256 x 256 pixels of one colour."""
    rows = (b"\0" + bytes((red, green, blue)) * 256) * 256
    parts = (
        (b"IHDR", struct.pack(">2I5B", 256, 256, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    )
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def write_map(path: Path, tile: bytes, kind: TileType = TileType.MVT) -> None:
    """Write a map that has the same tile in each place between the bounds, down to `ZOOM_MAX`."""
    with write(str(path)) as writer:
        for zoom in range(ZOOM_MAX + 1):
            (left, top), (right, bottom) = _place(zoom, WEST, NORTH), _place(zoom, EAST, SOUTH)
            ids = [
                zxy_to_tileid(zoom, x, y)
                for x in range(left, right + 1)
                for y in range(top, bottom + 1)
            ]
            for tile_id in sorted(ids):
                writer.write_tile(tile_id, tile)
        bounds = {"min_lon_e7": WEST, "min_lat_e7": SOUTH, "max_lon_e7": EAST, "max_lat_e7": NORTH}
        header = {
            **{name: int(degrees * 10**7) for name, degrees in bounds.items()},
            "tile_type": kind,
            "tile_compression": Compression.NONE,
            "center_zoom": 5,
            "center_lon_e7": int((WEST + EAST) / 2 * 10**7),
            "center_lat_e7": int((SOUTH + NORTH) / 2 * 10**7),
        }
        writer.finalize(header, {"attribution": '<a href="//made.up">Survey of <b>Nowhere</b></a>'})


def _place(zoom: int, lon: float, lat: float) -> tuple[int, int]:
    across = 1 << zoom
    y = math.asinh(math.tan(math.radians(lat))) / math.pi
    return int((lon + 180) / 360 * across), int((1 - y) / 2 * across)


def _square(low: int, high: int) -> Shape:
    return Shape([(low, low), (high, low), (high, high), (low, high)], "water", closed=True)

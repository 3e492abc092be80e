"""Tiles of shapes, in Mapbox's format 2.1, as a map in a PMTiles file has them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

EXTENT = 4096
"""A tile's side, in its own units; the origin is its north-west corner."""
_LINE, _POLYGON = 2, 3
_MOVE, _DRAW, _CLOSE = 1, 2, 7


@dataclass(frozen=True, slots=True)
class Shape:
    """A line, or the area within a closed line.

    Attributes:
        points: x and y in a tile's units, of an area clockwise as seen; they may lie outside of the tile.
        kind: by which the map's colours go.
        closed: whether it is an area.
    """

    points: Sequence[tuple[int, int]]
    kind: str = ""
    closed: bool = False


def vector_tile(layers: Mapping[str, Sequence[Shape]]) -> bytes:
    """Return a tile of these layers, in their order."""
    return b"".join(_field(3, _layer(name, shapes)) for name, shapes in layers.items())


def _layer(name: str, shapes: Sequence[Shape]) -> bytes:
    kinds = sorted({shape.kind for shape in shapes})
    values = (_field(4, _field(1, kind.encode())) for kind in kinds)
    features = (_field(2, _feature(shape, kinds.index(shape.kind))) for shape in shapes)
    parts = [_field(1, name.encode()), *features, _field(3, b"kind"), *values]
    return b"".join([_number(15, 2), *parts, _number(5, EXTENT)])


def _feature(shape: Shape, kind: int) -> bytes:
    tags = _field(2, _varint(0) + _varint(kind))
    return tags + _number(3, _POLYGON if shape.closed else _LINE) + _field(4, _geometry(shape))


def _geometry(shape: Shape) -> bytes:
    """Return the commands: to the first point, along the others, and back if it is closed; each step from the one before."""
    steps = [(x - from_x, y - from_y) for (from_x, from_y), (x, y) in pairwise(shape.points)]
    commands = [_command(_MOVE, 1), *map(_signed, shape.points[0]), _command(_DRAW, len(steps))]
    commands += [_signed(each) for step in steps for each in step]
    return b"".join([*commands, _command(_CLOSE, 1) if shape.closed else b""])


def _command(what: int, times: int) -> bytes:
    return _varint(times << 3 | what)


def _signed(value: int) -> bytes:
    return _varint(value << 1 ^ value >> 63)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _field(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])

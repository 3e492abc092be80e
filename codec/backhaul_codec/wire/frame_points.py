"""Build the points of a frame from its proven layout."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, repeat
from operator import truediv
from typing import Any, NamedTuple

from backhaul_codec.points import (
    FLOAT64,
    INT64_MAX,
    INT64_MIN,
    JSON,
    UINT64,
    UINT64_MAX,
    Opaque,
    Point,
)
from backhaul_codec.wire.frame_fields import (
    BLOB_COLUMN,
    FLOAT32_COLUMN,
    FLOAT_WIDTHS,
    POWERS,
)
from backhaul_codec.wire.frame_layout import Layout, unplane


def build_points(layout: Layout) -> list[Point]:
    """Return the points in arrival order. The layout comes from read_layout and is trusted."""
    sids = layout.sid.to_array()
    nexts = [iter(values).__next__ for values in _series_values(layout)]
    nodes: Iterable[str] = repeat(layout.node)
    if layout.nodes is not None:
        nodes = map(layout.nodes.__getitem__, sids)
    keys: Iterable[str] = repeat("")
    if layout.keys is not None:
        keys = map(layout.keys.__getitem__, sids)
    origins: Iterable[str] = repeat("")
    if layout.origin_of is not None:
        origins = map(layout.origins.__getitem__, layout.origin_of.to_array())
    return list(
        map(
            Point,
            nodes,
            map(layout.types.__getitem__, sids),
            build_times(layout),
            [nexts[sid]() for sid in sids],
            keys,
            repeat(0) if layout.tomb is None else layout.tomb,
            origins,
        )
    )


def build_times(layout: Layout) -> list[int]:
    """Return the time of each point, in arrival order."""
    steps: Sequence[int] = layout.dt.to_array()
    if layout.unit > 1:
        steps = [layout.unit * step for step in steps]
    return running(layout.t0, steps, INT64_MIN, INT64_MAX)


def running(first: int, steps: Iterable[int], low: int, high: int) -> list[int]:
    """Return first, first + steps[0], ... modulo 2**64 within low..high."""
    numbers = list(accumulate(steps, initial=first))
    if min(numbers) < low or max(numbers) > high:
        return [(number - low) % 2**64 + low for number in numbers]
    return numbers


class SeriesPlace(NamedTuple):
    """Hold where the values of a series are: entries `start` to `end` of `column`, after `base`."""

    dtype: int
    column: int
    exponent: int
    base: int
    start: int
    end: int


def series_places(layout: Layout) -> list[SeriesPlace]:
    """Return where the values of each series are, in series order."""
    bases = iter(layout.bases)
    offsets = [0] * (BLOB_COLUMN + 1)
    places = []
    for dtype, column, exponent, count in zip(*layout.shapes(), layout.counts, strict=True):
        integers = column < 4
        start = offsets[column]
        end = offsets[column] = start + (count - 1 if integers else count)
        base = next(bases) if integers else 0
        places.append(SeriesPlace(dtype, column, exponent, base, start, end))
    return places


def column_entries(layout: Layout, column: int) -> Sequence[Any]:
    """Return all entries of a column: steps, doubles or indices of blobs."""
    if column in layout.planes:
        return _doubles(layout.planes[column], column)
    numbers = layout.numbers.get(column)
    return () if numbers is None else numbers.to_array()


def values_at(layout: Layout, place: SeriesPlace, column: Sequence[Any]) -> Sequence[Any]:
    """Return the values of a series; `column` are all entries of its column."""
    entries = column[place.start : place.end]
    if place.column < 4:
        return _integers(place.base, entries, place.dtype, place.exponent)
    if place.column == BLOB_COLUMN:
        return _from_blobs(layout.blobs, entries, place.dtype)
    return entries


def _series_values(layout: Layout) -> Iterator[Sequence[Any]]:
    """Yield the values of each series, in series order."""
    places = series_places(layout)
    columns = {column: column_entries(layout, column) for column in {p.column for p in places}}
    for place in places:
        yield values_at(layout, place, columns[place.column])


def _integers(base: int, steps: Sequence[int], dtype: int, exponent: int) -> Sequence[int | float]:
    if dtype == UINT64:
        return running(base, steps, 0, UINT64_MAX)
    numbers = running(base, steps, INT64_MIN, INT64_MAX)
    if dtype == FLOAT64:
        # Python makes the integer a double before it divides by one, as numpy does.
        return list(map(truediv, numbers, repeat(POWERS[exponent])))
    return numbers


def _doubles(planes: bytes, column: int) -> Sequence[float]:
    values: array[float] = array("f" if column == FLOAT32_COLUMN else "d")
    values.frombytes(unplane(planes, FLOAT_WIDTHS[column]))
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _from_blobs(
    blobs: list[str | bytes], indices: Sequence[int], dtype: int
) -> Sequence[str | bytes | Opaque]:
    if dtype < JSON:
        return [blobs[index] for index in indices]
    opaques: dict[int, Opaque] = {}
    for index in set(indices):
        blob = blobs[index]
        opaques[index] = Opaque(dtype, blob.encode() if isinstance(blob, str) else blob)
    return [opaques[index] for index in indices]

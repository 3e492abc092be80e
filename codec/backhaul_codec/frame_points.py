"""Build the points of a frame from its proven layout."""

from __future__ import annotations

import sys
from array import array
from itertools import accumulate, repeat
from operator import truediv
from typing import TYPE_CHECKING, Any

from backhaul_codec.frame_fields import (
    BLOB_COLUMN,
    FLOAT32_COLUMN,
    FLOAT_WIDTHS,
    POWERS,
)
from backhaul_codec.frame_layout import unplane
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

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from backhaul_codec.frame_layout import Layout


def build_points(layout: Layout) -> list[Point]:
    """Return the points in arrival order. The layout comes from read_layout and is trusted."""
    sids = layout.sid.to_array()
    nexts = [iter(values).__next__ for values in _series_values(layout)]
    keys: Iterable[str] = repeat("")
    if layout.keys is not None:
        keys = map(layout.keys.__getitem__, sids)
    origins: Iterable[str] = repeat("")
    if layout.origin_of is not None:
        origins = map(layout.origins.__getitem__, layout.origin_of.to_array())
    return list(
        map(
            Point,
            repeat(layout.node),
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


def _series_values(layout: Layout) -> Iterator[Sequence[Any]]:
    """Yield the values of each series, in series order."""
    bases = iter(layout.bases)
    columns: dict[int, Sequence[Any]] = {
        column: numbers.to_array() for column, numbers in layout.numbers.items()
    }
    for column, planes in layout.planes.items():
        columns[column] = _doubles(planes, column)
    offsets = [0] * (BLOB_COLUMN + 1)
    for dtype, column, exponent, count in zip(*layout.shapes(), layout.counts, strict=True):
        start = offsets[column]
        end = offsets[column] = start + (count - 1 if column < 4 else count)
        entries = columns.get(column, ())[start:end]
        if column < 4:
            yield _integers(next(bases), entries, dtype, exponent)
        elif column == BLOB_COLUMN:
            yield _from_blobs(layout.blobs, entries, dtype)
        else:
            yield entries


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

"""Lay the columns of frames that were proven one by one end to end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from backhaul_codec.bulk.frame_columns import Array, Columns, Strings, starts
from backhaul_codec.wire.frame_fields import (
    BLOB_COLUMN,
    FLOAT32_COLUMN,
    FLOAT64_COLUMN,
    FLOAT_WIDTHS,
    SIGNED_CODES,
)
from backhaul_codec.wire.frame_layout import Layout, Numbers, unplane

if TYPE_CHECKING:
    from backhaul_codec.points import Header

_DTYPES = {
    code: np.dtype(letters)
    for code, letters in zip(
        "bhiqBHI", ("i1", "<i2", "<i4", "<i8", "u1", "<u2", "<u4"), strict=True
    )
}


def columns_of(
    messages: Sequence[int], headers: Sequence[Header], layouts: Sequence[Layout]
) -> Columns:
    """Return the columns of layouts; the three lists are parallel, and not empty."""
    points = np.array([layout.n for layout in layouts])
    series = np.array([len(layout.types) for layout in layouts])
    kinds = np.frombuffer(b"".join([layout.kinds for layout in layouts]), np.uint8)
    bases = chain.from_iterable([layout.bases for layout in layouts])
    columns = Columns(
        message=np.array(messages),
        epoch=np.array([header.epoch for header in headers], np.uint32),
        seq=np.array([header.seq for header in headers], np.uint64),
        clock=np.array([layout.clock for layout in layouts], np.uint8),
        points=points,
        series=series,
        t0=np.array([layout.t0 for layout in layouts]),
        unit=np.array([layout.unit for layout in layouts], np.uint64),
        dt=_joined([layout.dt for layout in layouts], points - 1),
        sid=_joined([layout.sid for layout in layouts], points),
        kinds=kinds.reshape(-1, 3),
        counts=np.fromiter(chain.from_iterable([layout.counts for layout in layouts]), np.int64),
        bases=np.array([base % 2**64 for base in bases], np.uint64),
        entries=_entries(layouts),
        node=_nodes(layouts, series),
        type=_each(layout.types for layout in layouts),
    )
    if any(layout.keys is not None for layout in layouts):
        columns.key = _each(layout.keys or [""] * len(layout.types) for layout in layouts)
    if any(layout.tomb is not None for layout in layouts):
        tombs = b"".join([layout.tomb or bytes(layout.n) for layout in layouts])
        columns.tomb = np.frombuffer(tombs, np.uint8)
    if any(layout.origin_of is not None for layout in layouts):
        columns.origin = _origins(layouts, points)
    _add_blobs(columns, [layout for layout in layouts if BLOB_COLUMN in layout.numbers])
    return columns


def _nodes(layouts: Sequence[Layout], series: Array) -> Strings:
    if all(layout.nodes is None for layout in layouts):
        return Strings([layout.node for layout in layouts], np.repeat(range(len(layouts)), series))
    return _each(layout.nodes or [layout.node] * len(layout.types) for layout in layouts)


def _each(texts_of_frames: Iterable[list[str]]) -> Strings:
    texts = list(chain.from_iterable(texts_of_frames))
    return Strings(texts, np.arange(len(texts)))


def _origins(layouts: Sequence[Layout], points: Array) -> Strings:
    names = [layout.origins or [""] for layout in layouts]
    parts = [layout.origin_of or Numbers("B", bytes(layout.n)) for layout in layouts]
    offsets = np.repeat(starts(np.array([len(some) for some in names])), points)
    return Strings(list(chain.from_iterable(names)), _joined(parts, points) + offsets)


def _entries(layouts: Sequence[Layout]) -> dict[int, Array]:
    """Return the entries of columns 0..5, of those that have any."""
    found: dict[int, Array] = {}
    for column, code in enumerate(SIGNED_CODES.values()):
        parts = [layout.numbers.get(column) for layout in layouts]
        data = b"".join([part.data for part in parts if part is not None])
        if data:
            found[column] = np.frombuffer(data, _DTYPES[code])
    for column, letter in ((FLOAT32_COLUMN, "<f4"), (FLOAT64_COLUMN, "<f8")):
        planes_of = [layout.planes[column] for layout in layouts if column in layout.planes]
        if planes_of:
            raw = b"".join([unplane(planes, FLOAT_WIDTHS[column]) for planes in planes_of])
            found[column] = np.frombuffer(raw, letter)
    return found


def _add_blobs(columns: Columns, indexed: list[Layout]) -> None:
    if not indexed:
        return
    parts = [layout.numbers[BLOB_COLUMN] for layout in indexed]
    sizes = np.array([len(part) for part in parts])
    offsets = np.repeat(starts(np.array([len(layout.blobs) for layout in indexed])), sizes)
    columns.entries[BLOB_COLUMN] = _joined(parts, sizes) + offsets
    columns.blobs = list(chain.from_iterable([layout.blobs for layout in indexed]))


def _joined(parts: Sequence[Numbers], sizes: Array) -> Array:
    """Return the numbers of all parts one after the other; `sizes` says how many each has."""
    codes = {part.code for part in parts}
    if len(codes) == 1:
        data = b"".join([part.data for part in parts])
        return np.frombuffer(data, _DTYPES[codes.pop()])
    numbers: np.ndarray[Any, Any] = np.empty(int(sizes.sum()), np.int64)
    for code in codes:
        mine = np.repeat(np.array([part.code == code for part in parts]), sizes)
        data = b"".join([part.data for part in parts if part.code == code])
        numbers[mine] = np.frombuffer(data, _DTYPES[code])
    return numbers

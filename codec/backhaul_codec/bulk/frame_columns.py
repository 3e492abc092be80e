"""Hold the columns of many proven frames as numpy takes them, each laid end to end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from backhaul_codec.wire.frame_fields import BLOB_COLUMN

Array: TypeAlias = npt.NDArray[Any]


class Strings(NamedTuple):
    """Hold texts, and which of them each series (or row) has."""

    texts: list[str]
    number_of: Array


@dataclass(slots=True)
class Columns:
    """Hold the columns of proven frames, each laid end to end, as numpy takes them.

    Of each frame: `points`, `series`, `t0`, `unit`, `clock`, `epoch`, `seq`, and `message`, its
    index in a batch. Of each series: `kinds` (three bytes), `counts` (points), `node`, `type`,
    `key` (None: all empty). Of each point in arrival order: `sid`, counted within its frame, `tomb`
    and `origin` (None: all 0, all empty), and `dt`, which the first of a frame does not have.
    `bases` (uint64) and `entries` of columns 0..6 are in series order; the entries of column 6
    are indices into `blobs`.
    """

    message: Array
    epoch: Array
    seq: Array
    clock: Array
    points: Array
    series: Array
    t0: Array
    unit: Array
    dt: Array
    sid: Array
    kinds: Array
    counts: Array
    bases: Array
    entries: dict[int, Array]
    node: Strings
    type: Strings
    key: Strings | None = None
    blobs: list[str | bytes] | None = None
    tomb: Array | None = None
    origin: Strings | None = None


def join(parts: Sequence[Columns]) -> Columns:
    """Return the columns of all parts, at least one, the frames of the first one first."""
    if len(parts) == 1:
        return parts[0]
    series = [len(part.kinds) for part in parts]
    points = [len(part.sid) for part in parts]
    blobs = [part.blobs or [] for part in parts]
    return Columns(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in _ARRAYS},
        entries=_join_entries(parts, starts(np.array([len(each) for each in blobs]))),
        node=_join_strings([part.node for part in parts]),
        type=_join_strings([part.type for part in parts]),
        key=_join_optional([part.key for part in parts], series),
        blobs=list(chain.from_iterable(blobs)) if any(blobs) else None,
        tomb=_join_tombs([part.tomb for part in parts], points),
        origin=_join_optional([part.origin for part in parts], points),
    )


# Of Columns, the arrays that are never None.
_ARRAYS = [each.name for each in fields(Columns) if each.type == "Array"]


def _join_entries(parts: Sequence[Columns], blob_offsets: Array) -> dict[int, Array]:
    found: defaultdict[int, list[Array]] = defaultdict(list)
    for part, offset in zip(parts, blob_offsets, strict=True):
        for column, entries in part.entries.items():
            found[column].append(entries + offset if column == BLOB_COLUMN else entries)
    return {column: np.concatenate(each) for column, each in found.items()}


def _join_strings(parts: Sequence[Strings]) -> Strings:
    offsets = starts(np.array([len(part.texts) for part in parts]))
    numbers = [part.number_of + offset for part, offset in zip(parts, offsets, strict=True)]
    return Strings(
        list(chain.from_iterable([part.texts for part in parts])), np.concatenate(numbers)
    )


def _join_optional(parts: Sequence[Strings | None], sizes: Sequence[int]) -> Strings | None:
    if all(part is None for part in parts):
        return None
    empty = [Strings([""], np.zeros(size, np.int64)) for size in sizes]
    return _join_strings([part or none for part, none in zip(parts, empty, strict=True)])


def _join_tombs(parts: Sequence[Array | None], sizes: Sequence[int]) -> Array | None:
    if all(part is None for part in parts):
        return None
    zeros = [np.zeros(size, np.uint8) for size in sizes]
    return np.concatenate(
        [none if part is None else part for part, none in zip(parts, zeros, strict=True)]
    )


def starts(sizes: Array) -> Array:
    """Return where each of consecutive runs starts."""
    return np.cumsum(sizes) - sizes


def signed(argument: Array, negative: Array) -> Array:
    """Return the integers of CBOR heads; each has room in 64 bits."""
    return np.where(negative, ~argument, argument).view(np.int64)

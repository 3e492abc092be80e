"""Prove many small frames at once with numpy, and lay their columns end to end.

What it takes, `frame_layout` would take as well, and to the same points; what it does not take may
be right or wrong, and is for `frame_layout` to judge: blobs, tombstones, origins, hints, damage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from backhaul_codec.bulk.frame_walk import NOT_THERE, FrameWalk
from backhaul_codec.bulk.small_columns import SERIES_DTYPES, STEP_DTYPES, Names, Values, has_width
from backhaul_codec.bulk.small_envelopes import open_small
from backhaul_codec.points import INT64_MAX, Kind
from backhaul_codec.wire.frame_fields import POINTS_MAX, Field

if TYPE_CHECKING:
    from backhaul_codec.bulk.frame_columns import Array, Columns
    from backhaul_codec.bulk.subject_names import SubjectNames

_NEEDED = [
    *(Field.N, Field.T0, Field.UNIT, Field.DT, Field.SID, Field.TYPES, Field.KINDS),
    Field.COLUMNS,
]


def read_small_frames(
    messages: Sequence[bytes],
    names: Sequence[SubjectNames | None],
    fewest: int,
    kind: Kind = Kind.FRAME,
) -> Columns | None:
    """Return the columns of those messages that are proven small frames, or bundles; None: of not one.

    `names` are what their subjects say (None: leave that message out). A frame of an edge is left
    out: its points are of two nodes. Of fewer small frames than `fewest`, none is read.
    """
    may_be = [
        index
        for index, said in enumerate(names)
        if said is not None and said.kind in (None, kind) and not said.parent
    ]
    opened = open_small(messages, may_be, kind, fewest)
    if opened is None:
        return None
    walk = FrameWalk(opened.bodies, bundles=kind is Kind.BUNDLE)
    frames = np.flatnonzero(walk.good & _sizes_agree(walk))
    texts = Names(walk, frames)
    said_of = [names[index] for index in opened.message[frames].tolist()]
    frames = frames[texts.agree(frames, [said and said.node for said in said_of])]
    while len(frames):
        values = Values(walk, frames)
        good = values.agree()
        if good.all():
            headers = opened.headers[frames]
            stamps = (opened.message[frames], headers["epoch"], headers["seq"])
            return values.columns(texts, *stamps)
        frames = frames[good]
    return None


def _sizes_agree(walk: FrameWalk) -> Array:
    """Tell of each body whether it has the fields it must have, in range and as long as they must be."""
    size = walk.argument
    n = np.minimum(size[Field.N], POINTS_MAX + 1).astype(np.int64)
    no_keys = walk.end[Field.KEYS] == NOT_THERE
    named = Field.NODES if walk.bundles else Field.NODE
    agree: Array = (
        (walk.end[[*_NEEDED, named]] != NOT_THERE).all(axis=0)
        & ((size[Field.NODES] == size[Field.TYPES]) | (not walk.bundles))
        & ~walk.negative[[Field.N, Field.UNIT, Field.CLOCK]].any(axis=0)
        & ((n >= 1) & (n <= POINTS_MAX))
        & (size[Field.T0] <= INT64_MAX)
        & (size[Field.UNIT] >= 1)
        & (size[Field.CLOCK] <= 2)
        & has_width(size[Field.DT], n - 1, STEP_DTYPES)
        & has_width(size[Field.SID], n, SERIES_DTYPES)
        & (size[Field.TYPES] >= 1)
        & (size[Field.KINDS] == 3 * size[Field.TYPES])
        & (no_keys | (size[Field.KEYS] == size[Field.TYPES]))
    )
    return agree

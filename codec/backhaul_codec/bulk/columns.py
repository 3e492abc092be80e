"""Decode many messages together into Arrow, with no Python per point.

For the hub and Spark: needs numpy and pyarrow. Small messages are proven together; any other,
and any that is not in order, as `decode` proves it. Then numpy works on the columns of all frames at
once. Give it 100 messages or more at a time, tiny ones by the thousand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct

import pyarrow as pa  # type: ignore[import-untyped]

from backhaul_codec.bulk.column_batch import SCHEMA, TEXT_BYTES_MAX, assemble
from backhaul_codec.bulk.frame_columns import Columns, join
from backhaul_codec.bulk.layout_columns import columns_of
from backhaul_codec.bulk.small_envelopes import FEWEST
from backhaul_codec.bulk.small_frames import read_small_frames
from backhaul_codec.bulk.small_points import read_small_points
from backhaul_codec.bulk.subject_names import SubjectNames, edge_name, names_of
from backhaul_codec.errors import CodecError
from backhaul_codec.points import (
    BYTES,
    FLOAT64,
    INT64,
    INT64_MAX,
    JSON,
    TEXT,
    UINT64,
    Header,
    Kind,
    Opaque,
    Value,
)
from backhaul_codec.subjects import NODE_TYPE_PREFIX
from backhaul_codec.wire.dictionaries import require_dictionary
from backhaul_codec.wire.envelope import unseal
from backhaul_codec.wire.frame_fields import BLOB_COLUMN, FLOAT64_COLUMN
from backhaul_codec.wire.frame_layout import Layout, Numbers, read_layout
from backhaul_codec.wire.messages import read_frame
from backhaul_codec.wire.point_body import read_point

__all__ = ["SCHEMA", "Rejected", "decode_columns", "edge_name"]

_DOUBLE = Struct("<d")
_NO_NUMBERS = Numbers("b", b"")
_FIRST = Numbers("B", b"\0")


@dataclass(frozen=True, slots=True)
class Rejected:
    """Hold why the message at `index` of a batch was left out."""

    index: int
    code: str
    reason: str


def decode_columns(
    messages: Sequence[bytes],
    *,
    subjects: Sequence[str] | None = None,
    rejected: list[Rejected] | None = None,
    together_min: int = FEWEST,
    texts_max: int = TEXT_BYTES_MAX,
) -> pa.RecordBatch:
    """Return one row per point, in the order of the messages, with the schema `SCHEMA`.

    `message` is the index into `messages`. A value is in the one of `f64`, `i64`, `text` and
    `data` that its `dtype` calls for (uint64 as its two's complement in `i64`); the others are
    null. `subjects`, one for each message, `up.<device>.` before it or not, give a point message
    its node, type and key and must agree with a frame's node. Without them point messages have
    empty names. An event's kind is its type; a result's command id is its key; the point of an
    edge has `<parent>><node>` as its node, alone or in a frame. An event that no history has is proven
    as any other and gives no row.

    Small frames are proven together if there are `together_min` of them, and so are small points; that
    changes the time that it takes, and nothing else.

    A message that does not decode is appended to `rejected` and left out.
    Raises: CodecError with `index` for the first such message if `rejected` is None; CodecError
    (`batch`) if the texts of all together, a copy for each point, pass `texts_max` bytes, 2 GiB at most:
    give fewer messages at a time.
    """
    if subjects is not None and len(subjects) != len(messages):
        raise ValueError(f"{len(subjects)} subjects for {len(messages)} messages")
    errors: dict[int, CodecError] = {}
    names = names_of(len(messages), subjects, errors)
    frames = read_small_frames(messages, names, together_min)
    bundles = read_small_frames(messages, names, together_min, Kind.BUNDLE)
    points = read_small_points(messages, names, together_min)
    done = set(points.proven)
    for each in (frames, bundles):
        if each is not None:
            done.update(each.message.tolist())
    rest = _read_rest(messages, names, done, errors)
    for index, error in sorted(errors.items()):
        if rejected is None:
            raise CodecError(error.reason, error.code, index) from error
        rejected.append(Rejected(index, error.code, error.reason))
    parts = [columns for columns in (frames, bundles, points.columns, rest) if columns is not None]
    return (
        assemble(join(parts), texts_max) if parts else pa.RecordBatch.from_pylist([], schema=SCHEMA)
    )


def _read_rest(
    messages: Sequence[bytes],
    names: Sequence[SubjectNames | None],
    done: set[int],
    errors: dict[int, CodecError],
) -> Columns | None:
    """Prove one by one the messages that have names and are not done."""
    indices: list[int] = []
    headers: list[Header] = []
    layouts: list[Layout] = []
    for index, (message, said) in enumerate(zip(messages, names, strict=True)):
        if said is None or index in done:
            continue
        try:
            header, layout = _read(message, said)
        except CodecError as error:
            errors[index] = error
        else:
            if layout is not None and not said.silent:
                indices.append(index)
                headers.append(header)
                layouts.append(layout)
    return columns_of(indices, headers, layouts) if indices else None


def _read(message: bytes, names: SubjectNames) -> tuple[Header, Layout | None]:
    header, body = unseal(message)
    if names.kind not in (None, header.kind):
        raise CodecError(f"a {header.kind.name.lower()} came on a subject of others", "subject")
    if header.kind is Kind.FRAME:
        layout = read_frame(body, names.node)
        if names.parent:
            _name_ends(layout, names.parent)
        return header, layout
    if header.kind is Kind.BUNDLE:
        return header, read_layout(body, bundle=True)
    if header.kind is Kind.DICTIONARY:
        require_dictionary(body)
        return header, None
    time, value, tombstone, origin = read_point(body)
    layout = _layout_of_point(time, value, names)
    layout.tomb = bytes([tombstone])
    layout.origins, layout.origin_of = [origin], _FIRST
    return header, layout


def _name_ends(layout: Layout, parent: str) -> None:
    """Say of each series in a frame of an edge whether it is the edge's or the lower node's."""
    edge = edge_name(parent, layout.node)
    own = [type_.startswith(NODE_TYPE_PREFIX) for type_ in layout.types]
    layout.nodes = [layout.node if mine else edge for mine in own]
    layout.types = [type_.removeprefix(NODE_TYPE_PREFIX) for type_ in layout.types]


def _layout_of_point(time: int, value: Value, names: SubjectNames) -> Layout:
    """Return a point as a frame of one, so that both go the same way from here on."""
    layout = Layout(
        n=1,
        node=names.node or "",
        clock=0,
        t0=time,
        unit=1,
        dt=_NO_NUMBERS,
        sid=_FIRST,
        types=[names.type],
        keys=[names.key],
        kinds=b"",
        counts=[1],
        bases=[],
        numbers={},
        planes={},
        blobs=[],
        tomb=None,
        origins=[],
        origin_of=None,
    )
    if isinstance(value, float):
        layout.kinds = bytes((FLOAT64, FLOAT64_COLUMN, 0))
        layout.planes[FLOAT64_COLUMN] = _DOUBLE.pack(value)
    elif isinstance(value, int):
        layout.kinds = bytes((INT64 if value <= INT64_MAX else UINT64, 0, 0))
        layout.bases.append(value)
    else:
        dtype, blob = _blob(value)
        layout.kinds = bytes((dtype, BLOB_COLUMN, 0))
        layout.blobs.append(blob)
        layout.numbers[BLOB_COLUMN] = _FIRST
    return layout


def _blob(value: str | bytes | Opaque) -> tuple[int, str | bytes]:
    if isinstance(value, Opaque):
        return value.dtype, value.data.decode() if value.dtype == JSON else value.data
    return (TEXT if isinstance(value, str) else BYTES), value

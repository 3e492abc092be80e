"""Decode many messages together into Arrow, with no Python per point.

For the hub and Spark: needs numpy and pyarrow. Each message is proven as `decode` proves it; then
numpy works on the columns of all frames at once. Give it 100 messages or more at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from backhaul_codec.column_batch import SCHEMA, assemble
from backhaul_codec.envelope import unseal
from backhaul_codec.errors import CodecError
from backhaul_codec.frame_fields import BLOB_COLUMN, FLOAT64_COLUMN
from backhaul_codec.frame_layout import Layout, Numbers
from backhaul_codec.messages import read_frame
from backhaul_codec.point_body import read_point
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
from backhaul_codec.subjects import NODE_TYPE_PREFIX, SubjectError, parse_leaf, parse_uplink

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa  # type: ignore[import-untyped]

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


class _Names(NamedTuple):
    """Hold what a subject says of its message; `kind` None where there was no subject.

    `parent` of a frame is the upper end of its edge, "" for a node's frame; `node` of an edge's
    single point says both ends. `silent`: no point of it is a row.
    """

    kind: Kind | None
    node: str | None
    type: str
    key: str
    parent: str = ""
    silent: bool = False


_NO_NAMES = _Names(None, None, "", "")


def decode_columns(
    messages: Sequence[bytes],
    *,
    subjects: Sequence[str] | None = None,
    rejected: list[Rejected] | None = None,
) -> pa.RecordBatch:
    """Return one row per point, in the order of the messages, with the schema `SCHEMA`.

    `message` is the index into `messages`. A value is in the one of `f64`, `i64`, `text` and
    `data` that its `dtype` calls for (uint64 as its two's complement in `i64`); the others are
    null. `subjects`, one for each message, `up.<device>.` before it or not, give a point message
    its node, type and key and must agree with a frame's node. Without them point messages have
    empty names. An event's kind is its type; a result's command id is its key; the point of an
    edge has `<parent>><node>` as its node, alone or in a frame. An event of SYSTEM_EVENTS is proven
    as any other and gives no row.

    A message that does not decode is appended to `rejected` and left out.
    Raises: CodecError with `index` for the first such message if `rejected` is None; CodecError
    (`batch`) if the texts of all together pass 2 GiB: give fewer messages at a time.
    """
    if subjects is not None and len(subjects) != len(messages):
        raise ValueError(f"{len(subjects)} subjects for {len(messages)} messages")
    known: dict[str, _Names] = {}
    indices: list[int] = []
    headers: list[Header] = []
    layouts: list[Layout] = []
    for index, message in enumerate(messages):
        try:
            names = _NO_NAMES if subjects is None else _names(subjects[index], known)
            header, layout = _read(message, names)
        except CodecError as error:
            if rejected is None:
                raise CodecError(error.reason, error.code, index) from error
            rejected.append(Rejected(index, error.code, error.reason))
        else:
            if names.silent:
                continue
            indices.append(index)
            headers.append(header)
            layouts.append(layout)
    return assemble(indices, headers, layouts)


def _names(subject: str, known: dict[str, _Names]) -> _Names:
    names = known.get(subject)
    if names is None:
        names = known[subject] = _parse(subject)
    return names


def _parse(subject: str) -> _Names:
    try:
        uplink = parse_uplink(subject) if subject.startswith("up.") else parse_leaf(subject)
    except SubjectError as error:
        raise CodecError(str(error), "subject") from error
    if uplink.frame:
        return _Names(Kind.FRAME, uplink.node, "", "", uplink.parent or "")
    node = uplink.node or ""
    if uplink.parent is not None:
        node = edge_name(uplink.parent, node)
    return _Names(Kind.POINT, node, uplink.type or "", uplink.key or "", silent=uplink.system)


def edge_name(parent: str, node: str) -> str:
    """Return the node of an edge's points in rows: `<parent>><node>`."""
    return f"{parent}>{node}"


def _read(message: bytes, names: _Names) -> tuple[Header, Layout]:
    header, body = unseal(message)
    if names.kind not in (None, header.kind):
        raise CodecError(f"a {header.kind.name.lower()} came on a subject of others", "subject")
    if header.kind is Kind.FRAME:
        layout = read_frame(body, names.node)
        if names.parent:
            _name_ends(layout, names.parent)
        return header, layout
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


def _layout_of_point(time: int, value: Value, names: _Names) -> Layout:
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

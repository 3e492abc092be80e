"""Local programs' questions about the vehicle's heads, read from JSON: a pure core, no I/O.

Requests: ``agent.get[.<node>[.<type>[.<key>]]]``, ``agent.set[.<node>]``, ``agent.node.<what>``; see
docs/sync.md. A node in the subject is what a program's rights can name (docs/apps.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from backhaul_agent.apps.program_json import read_program_json
from backhaul_agent.errors import Code, RefusedError
from backhaul_codec import CodecError, Value
from backhaul_codec.rules import blob_size
from backhaul_codec.state.json_values import value_from_json, value_to_json
from backhaul_codec.strict.json import Reader
from backhaul_codec.subjects import SubjectError, decode_token, encode_token

if TYPE_CHECKING:
    from backhaul_codec.state.merge import Head, HeadKey, Heads

GET, SET, NODE, TREE = "agent.get", "agent.set", "agent.node", "agent.tree"
CHANGED, READY = "agent.changed", "agent.ready"
POINTS_MAX = 1000  # of one write
T = TypeVar("T")


class PointRequest(msgspec.Struct, forbid_unknown_fields=True):
    """One point to write: ``value`` and perhaps ``dtype``, or ``"delete": true``."""

    type: str
    key: str = ""
    value: Any | msgspec.UnsetType = msgspec.UNSET
    dtype: str | None = None
    delete: bool = False


class SetRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Points of one node, or with ``parent`` of the edge that leads down to it."""

    node: str
    points: list[PointRequest]
    parent: str = ""


class NodeRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The payload of ``agent.node.delete`` and ``undelete``."""

    node: str
    parent: str = ""


class CreateRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The payload of ``agent.node.create``. Without ``parent``: under the device itself."""

    node: str
    parent: str = ""
    type: str = ""
    points: list[PointRequest] = []


class MirrorRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The payload of ``agent.node.mirror``: one parent more for a node."""

    node: str
    parent: str


class MoveRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The payload of ``agent.node.move``; ``from`` may be left out where there is one parent only."""

    node: str
    to: str
    from_: str = msgspec.field(default="", name="from")


class GetRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The payload of a get: also for deleted nodes, or points of one edge only."""

    deleted: bool = False
    parent: str | None = None


def read(data: bytes, kind: type[T]) -> T:
    """Read a request; no bytes at all stand for ``{}``.

    Raises:
        RefusedError: it is none, with what is wrong.
    """
    return read_program_json(Reader(kind).read, data or b"{}")


def require_named(subject: str, prefix: str, node: str) -> None:
    """Refuse a request for another node than its subject names: rights go by the subject.

    ``prefix`` alone names none, and then any will do. Raises: RefusedError.
    """
    if subject == prefix:
        return
    try:
        named = decode_token(subject.removeprefix(f"{prefix}."))
    except SubjectError as error:
        raise RefusedError(Code.BAD_SUBJECT, str(error)) from error
    if node != named:
        raise RefusedError(Code.BAD_FIELD, f"of node {node!r}, asked as of {named!r}")


def value_of(request: PointRequest, bytes_max: int) -> Value:
    """Return the value of a point to be written.

    Raises:
        RefusedError: there is none, it does not fit its dtype, or is over ``bytes_max`` bytes.
    """
    if request.value is msgspec.UNSET:
        raise RefusedError(Code.BAD_VALUE, f'{request.type!r} has no "value" (and no "delete")')
    try:
        value = value_from_json(request.value, request.dtype)
    except CodecError as error:
        raise RefusedError(Code.BAD_VALUE, f"{request.type!r}: {error.reason}") from error
    if (size := blob_size(value)) > bytes_max:
        raise RefusedError(
            Code.TOO_LARGE, f"{request.type!r}: a value of {size} bytes, {bytes_max} are allowed"
        )
    return value


def find(heads: Heads, subject: str, data: bytes) -> list[dict[str, Any]]:
    """Answer a get: ``agent.get`` all, ``agent.get.<node>`` with the edges that lead to it.

    Raises:
        RefusedError: the subject or the payload is not understood.
    """
    request = read(data, GetRequest)
    try:
        names = [decode_token(token) for token in subject.split(".")[2:]]
    except SubjectError as error:
        raise RefusedError(Code.BAD_SUBJECT, str(error)) from error
    if len(names) > 3:
        raise RefusedError(
            Code.BAD_SUBJECT, f"{subject!r} is not agent.get[.<node>[.<type>[.<key>]]]"
        )
    found = heads.of_node(names[0]).items() if names else sorted(heads, key=lambda item: item[0])
    return [
        describe(key, head)
        for key, head in found
        if (request.deleted or not head.deleted)
        and (request.parent is None or key.parent == request.parent)
        and list(key[2 : 2 + len(names[1:])]) == names[1:]
    ]


def describe(key: HeadKey, head: Head) -> dict[str, Any]:
    """Return a head as JSON has it; see docs/sync.md."""
    value, dtype = value_to_json(head.value)
    shown: dict[str, Any] = {"node": key.node, "type": key.type, "key": key.key}
    if key.parent:
        shown["parent"] = key.parent
    shown |= {"value": value, "dtype": dtype, "time": head.time, "origin": head.origin}
    shown["tombstone"] = head.tombstone
    if head.deleted:
        shown["deleted"] = True
    return shown


def changed_subject(key: HeadKey) -> str:
    """Return where a change is announced: as the point's own subject, without its ``p``."""
    names = key if key.parent else key[1:]
    return ".".join([CHANGED, *map(encode_token, names)])

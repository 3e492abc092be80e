"""Writing at the hub: from a request to points with stamps. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backhaul_codec import CodecError, Value, encode_point
from backhaul_codec.state.merge import Head, HeadKey, tombstone_for
from backhaul_codec.subjects import NODE_TYPE_PREFIX, SubjectError
from backhaul_codec.wire.addressed import Addressed
from backhaul_hub.errors import WriteRefusedError
from backhaul_hub.sync import outbox as downlink
from backhaul_hub.sync.heads import DeviceHeads


@dataclass(frozen=True, slots=True)
class Put:
    """One series to be written, or to be deleted: with its present value, unless one is given."""

    key: HeadKey
    value: Value | None
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class NodeWrite:
    """Points of one node that are written together, and the subject they go to the vehicle on."""

    subject: str
    points: list[Addressed]


def plan_write(mine: DeviceHeads, puts: Sequence[Put], origin: str, time_ns: int) -> NodeWrite:
    """Return the write that fulfils a request: one node's series, all or none.

    Writing a value puts a deleted series back. `time_ns` is their stamp, greater than any seen
    (`DeviceHeads.next_stamp_ns`).

    Raises:
        WriteRefusedError: there is nothing to write, or to delete; or it is no point, or the node
            would not fit into one message.
    """
    if not puts:
        raise WriteRefusedError("nothing to write")
    if len({put.key for put in puts}) < len(puts):
        raise WriteRefusedError("a series is written twice")
    if len({put.key.node for put in puts}) > 1:
        raise WriteRefusedError("one write is of one node", hint="write them one by one")
    try:
        points = [_addressed(mine, put, origin, time_ns) for put in puts]
        subject = downlink.subject_of([put.key for put in puts])
        if len(puts) > 1:
            new = {HeadKey.of(*addressed): Head.of(addressed.point) for addressed in points}
            known = downlink.keys_of(mine.heads, subject)
            downlink.frame_of(mine.heads, {*known, *new}, new)
    except (CodecError, SubjectError) as error:
        raise WriteRefusedError(str(error)) from error
    return NodeWrite(subject, points)


def _addressed(mine: DeviceHeads, put: Put, origin: str, time_ns: int) -> Addressed:
    before = mine.heads.get(put.key)
    if not put.key.node or not put.key.type:
        raise WriteRefusedError("a point has a node and a type")
    if put.key.parent and put.key.type.startswith(NODE_TYPE_PREFIX):
        raise WriteRefusedError(f"no type of an edge starts with {NODE_TYPE_PREFIX!r}")
    value = put.value
    if value is None:
        if before is None or before.deleted:
            raise WriteRefusedError(f"there is no {'.'.join(filter(None, put.key))} to delete")
        value = before.value
    tombstone = tombstone_for(before.tombstone if before else 0, deleted=put.deleted)
    point = Head(time_ns, origin, value, tombstone).to_point(put.key)
    encode_point(point, epoch=0, seq=0)  # proves every rule of the format
    return Addressed(put.key.parent, point)

"""Examining many messages of UP at once, with the results of `examine` at a fraction of its cost.

numpy proves small frames and bundles together (codec/bulk). All other messages, and odd ones among those,
are left to `examine`: it alone judges garbage. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from backhaul_codec import CodecError, hash_of
from backhaul_codec.bulk.newest_columns import newest_rows
from backhaul_codec.bulk.small_envelopes import FEWEST
from backhaul_codec.bulk.small_frames import read_small_frames
from backhaul_codec.bulk.subject_names import SubjectNames
from backhaul_codec.kinds import BUNDLE, FRAME
from backhaul_codec.points import Kind
from backhaul_codec.subjects import DEVICE_ID, SubjectError, Uplink, parse_leaf
from backhaul_codec.wire.dictionaries import digest_in, is_packed, plain
from backhaul_codec.wire.envelope import body_bytes_of, link_of
from backhaul_codec.wire.expansion import ROW_BYTES, Expansion
from backhaul_hub.continuity.examine import (
    SEQ_MAX,
    Examined,
    Find,
    FrameNewest,
    UnreadableError,
    examine,
)
from backhaul_hub.continuity.lane_key import LaneKey

if TYPE_CHECKING:
    from backhaul_codec.bulk.frame_columns import Columns

_BODY_BYTES_MAX = 8 << 10
"""Of a body: a larger one is as well examined alone."""
_TOGETHER_BYTES_MAX = 1 << 20
"""Of bodies."""


def examine_many(
    messages: Sequence[tuple[str, bytes]],
    find: Find = lambda *_: None,
    *,
    together_min: int = FEWEST,
) -> Iterator[Examined | UnreadableError]:
    """Yield the result of `examine` for each message (subject, body), or its error.

    `together_min`: of fewer frames each is examined alone. It changes the time that it takes, and
    nothing else.
    """
    for some in _parts([_Read(*message, find) for message in messages]):
        found: dict[int, Examined] = {}
        if len(some) >= together_min:
            bodies, names = [each.body for each in some], [each.names for each in some]
            for kind in (Kind.FRAME, Kind.BUNDLE):
                columns = read_small_frames(bodies, names, together_min, kind)
                if columns is not None:
                    found.update(_examined(some, columns))
        for index, each in enumerate(some):
            # A large part takes long: the caller may let other tasks run before it asks for the next one.
            said = found.pop(index, None)
            yield _alone(each.subject, each.came, find) if said is None else said


def _alone(subject: str, body: bytes, find: Find) -> Examined | UnreadableError:
    try:
        return examine(subject, body, find)
    except UnreadableError as error:
        return error


class _Read:
    """Hold a message with its subject read, and without need of its dictionary.

    `names` is None for one that is to be examined alone; `size` is that of the body otherwise.
    """

    __slots__ = ("body", "came", "names", "size", "subject", "uplink")

    def __init__(self, subject: str, came: bytes, find: Find) -> None:
        self.subject, self.came, self.body = subject, came, came
        self.names: SubjectNames | None = None
        self.size = 0
        place = _place(subject)
        if place is None:
            return
        size = body_bytes_of(came)
        if not 0 < size <= _BODY_BYTES_MAX:
            return
        if is_packed(came):
            try:
                self.body = plain(came, partial(find, place[0].device))
            except CodecError:
                return
        self.uplink, self.names = place
        self.size = size


def _parts(messages: Sequence[_Read]) -> Iterator[Sequence[_Read]]:
    """Yield messages in parts whose points fit the memory: a point takes two bytes of a body at least."""
    start = size = 0
    for at, each in enumerate(messages):
        if size + each.size > _TOGETHER_BYTES_MAX:
            yield messages[start:at]
            start, size = at, 0
        size += each.size
    if start < len(messages):
        yield messages[start:]


def _examined(some: Sequence[_Read], columns: Columns) -> Iterator[tuple[int, Examined]]:
    """Yield for each frame of these columns its index and its contents."""
    rows = newest_rows(columns)
    each_of = (columns.message, columns.epoch, columns.seq, columns.clock)
    stamps = zip(*(each.tolist() for each in each_of), strict=True)
    sizes = zip(rows.points, rows.text_bytes, rows.clear, strict=True)
    for frame, ((index, epoch, seq, clock), (points, text_bytes, clear)) in enumerate(
        zip(stamps, sizes, strict=True)
    ):
        if not (epoch and 0 < seq <= SEQ_MAX):
            continue
        read = some[index]
        uplink, came, body = read.uplink, read.came, read.body
        yield (
            index,
            # By place: names would cost as much as all else here.
            Examined(
                LaneKey(uplink.device, uplink.lane, epoch),
                seq,
                uplink,
                body,
                None,
                None,
                Expansion(points, points * ROW_BYTES + text_bytes),
                link_of(came),
                hash_of(uplink.leaf_subject, came),
                0,
                None if body is came else digest_in(came),
                FrameNewest(rows, frame, clock) if clear else None,
            ),
        )


@lru_cache(1 << 15)
def _place(subject: str) -> tuple[Uplink, SubjectNames] | None:
    """Return the names in the subject of a frame or bundle, None of any other."""
    prefix, _, rest = subject.partition(".")
    device, _, leaf_subject = rest.partition(".")
    if prefix != "up" or not DEVICE_ID.match(device):
        return None
    known = _leaf(leaf_subject)
    if known is None:
        return None
    leaf, names = known
    uplink = Uplink(
        device, leaf.lane, leaf.leaf_subject, leaf.kind, leaf.node, lane_node=leaf.lane_node
    )
    return uplink, names


@lru_cache(16_384)
def _leaf(leaf_subject: str) -> tuple[Uplink, SubjectNames] | None:
    """Return the names that subjects of all vehicles share by this end; one copy of its text is kept."""
    try:
        uplink = parse_leaf(leaf_subject)
    except SubjectError:
        return None
    if uplink.kind not in (FRAME, BUNDLE):
        return None
    return uplink, SubjectNames(uplink.body_kind, uplink.node, "", "")

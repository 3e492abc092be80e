"""Examining one message of UP: its place in a lane, its words to the hub, or why it is garbage.

Here a message that is packed against a dictionary becomes one that needs none, for all who take it in. Its hash in
its lane's chain is that of the bytes as they came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from backhaul_codec import CodecError, Value, hash_of, peek
from backhaul_codec.kinds import DICTIONARY
from backhaul_codec.points import Header
from backhaul_codec.protocol.words import Word, WordError, read_word
from backhaul_codec.subjects import SubjectError, Uplink, parse_uplink
from backhaul_codec.wire.addressed import prove_addressed
from backhaul_codec.wire.dictionaries import digest_in, is_packed, plain, read_dictionary
from backhaul_codec.wire.envelope import unseal
from backhaul_codec.wire.expansion import ROW_BYTES, Expansion, expansion_of, expansion_of_point
from backhaul_codec.wire.frame_layout import Layout
from backhaul_codec.wire.messages import frame_layout
from backhaul_hub.continuity.lane_key import LaneKey

if TYPE_CHECKING:
    from backhaul_codec.bulk.newest_columns import NewestRows
    from backhaul_codec.points import SeriesName

LAYOUT_BYTES_MAX = 8 * 1024
"""Of a body whose layout is kept for those who read it next: a batch of them has to fit the memory,
and a layout takes up to some twenty times as much."""

Find: TypeAlias = Callable[[str, bytes], bytes | None]
"""Gives a device's dictionary of a digest, None where it is not here."""

SEQ_MAX = (1 << 62) - 1
"""As in what vehicles say of their lanes: no ledger comes so far, and hub.db takes no larger numbers than twice that."""


_ONE_POINT = Expansion(1, ROW_BYTES)


class FrameNewest(NamedTuple):
    """The newest values of one of many frames that were read together."""

    rows: NewestRows
    frame: int
    clock: int
    """How good the vehicle's clock was, as in a layout."""

    @property
    def newest_ns(self) -> int:
        """Return the greatest time of all points, in ns."""
        return self.rows.newest_ns[self.frame]

    def each(self) -> Iterator[tuple[SeriesName, int, Value]]:
        """Return each series with the time (ns) and the value of its newest point."""
        rows, frame = self.rows, self.frame
        first = rows.first[frame]
        last = rows.first[frame + 1] if frame + 1 < len(rows.first) else len(rows.name)
        names = map(rows.names.__getitem__, rows.name[first:last])
        return zip(names, rows.time[first:last], rows.value[first:last], strict=True)


@dataclass(slots=True)
class Examined:
    """The contents of one message of UP: its place in a lane, its subject, and its body, all of it proven.

    Nobody changes one. It is not frozen: that takes four times as long to make, for every message.
    """

    key: LaneKey
    seq: int
    uplink: Uplink
    body: bytes
    """The whole envelope, in need of no dictionary; `backhaul_codec.decode` reads it."""
    word: Word | None = None
    layout: Layout | None = None
    """What was read of a frame or bundle already, where it is worth keeping: ask `frame_layout`."""
    expansion: Expansion = _ONE_POINT
    """What its points come to, each with all that is said of it."""
    link: bytes = b""
    """The hash that it names as that of the message before it in its lane; empty in version 1."""
    own: bytes = b""
    """Its hash in its lane's chain."""
    stored_ns: int = 0
    """When UP stored it; ns since the Unix epoch. Said of the first of a lane alone."""
    dictionary: bytes | None = None
    """The digest of the dictionary that it was packed against as it came."""
    newest: FrameNewest | None = field(default=None, compare=False)
    """Of a frame or bundle that was read together with others: the newest value of each of its series."""

    def frame_layout(self) -> Layout:
        """Return the layout of a frame or bundle, read anew only where it is large.

        Raises:
            CodecError: the message is neither.
        """
        return self.layout or frame_layout(self.body, None)


class UnreadableError(Exception):
    """A message of UP that no reader will understand: `code` for counting, `reason` in words.

    `place` is its place in a lane where the message is what its writer sealed, so that sending it
    again would bring the same; None where it may have been damaged on the way.
    """

    def __init__(self, code: str, reason: str, place: tuple[LaneKey, int] | None = None) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.place = place


class MissingDictionaryError(UnreadableError):
    """A message that can be read once the dictionary of this digest is here.

    `brought`: it is the message that carries it, and the hub has no room for it. `at`: its place in its lane, as
    its header says.
    """

    def __init__(
        self,
        device: str,
        digest: bytes,
        reason: str,
        *,
        brought: bool = False,
        at: tuple[LaneKey, int] | None = None,
    ) -> None:
        super().__init__("dictionary", reason)
        self.at = at
        self.device = device
        self.digest = digest
        self.brought = brought


def examine(
    subject: str, body: bytes, find: Callable[[str, bytes], bytes | None] = lambda *_: None
) -> Examined:
    """Read one message as far as continuity needs, and check all the rest of it.

    Args:
        subject: the one on which UP has it.
        body: the envelope as it came.
        find: gives a device's dictionary of a digest, None where it is not here.

    Raises:
        UnreadableError: it is garbage, by its subject or its body; or its dictionary is missing.
    """
    try:
        uplink = parse_uplink(subject)
    except SubjectError as error:
        raise UnreadableError("subject", str(error)) from error
    came, dictionary = body, None
    if is_packed(body):
        body, dictionary = _plain(uplink, body, find)
    try:
        header, layout = prove_addressed(uplink, body)
        if uplink.kind is DICTIONARY:
            read_dictionary(body, bytes.fromhex(uplink.key or ""))
    except CodecError as error:
        raise UnreadableError(error.code, error.reason, _place(uplink, body)) from error
    if not _in_lane(header):
        raise UnreadableError("no_position", "the message has no epoch and seq of a lane")
    key = LaneKey(uplink.device, uplink.lane, header.epoch)
    try:
        word = read_word(uplink, header.epoch, body)
    except WordError as error:
        raise UnreadableError(error.kind, str(error), (key, header.seq)) from error
    expansion = expansion_of_point(header.raw_len) if layout is None else expansion_of(layout)
    kept = layout if header.raw_len <= LAYOUT_BYTES_MAX else None
    own = own_hash(subject, came)
    return Examined(
        *(key, header.seq, uplink, body, word, kept, expansion, header.link, own),
        dictionary=dictionary,
    )


def own_hash(subject: str, body: bytes) -> bytes:
    """Return a message's hash in its lane's chain, by the subject on which UP has it."""
    return hash_of(subject.split(".", 2)[2], body)


def _plain(
    uplink: Uplink, body: bytes, find: Callable[[str, bytes], bytes | None]
) -> tuple[bytes, bytes | None]:
    """Return a message without need of its dictionary, and that one's digest. Raises: UnreadableError."""
    digest = None
    try:
        digest = digest_in(body)
        return plain(body, partial(find, uplink.device)), digest
    except CodecError as error:
        if error.code == "dictionary" and digest is not None:
            header = peek(body)
            key = LaneKey(uplink.device, uplink.lane, header.epoch)
            at = (key, header.seq) if _in_lane(header) else None
            raise MissingDictionaryError(uplink.device, digest, error.reason, at=at) from error
        raise UnreadableError(error.code, error.reason) from error


def _place(uplink: Uplink, body: bytes) -> tuple[LaneKey, int] | None:
    """Return the place in its lane of a message whose body is as it was sealed."""
    try:
        header, _ = unseal(body)
    except CodecError:
        return None
    if not _in_lane(header):
        return None
    return LaneKey(uplink.device, uplink.lane, header.epoch), header.seq


def _in_lane(header: Header) -> bool:
    return header.epoch != 0 and 0 < header.seq <= SEQ_MAX

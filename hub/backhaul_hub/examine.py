"""Examining one message of UP: its place in a lane, what it says to the hub, or why it is garbage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from backhaul_codec import CodecError
from backhaul_codec.envelope import unseal
from backhaul_codec.placed import check_placed
from backhaul_codec.subjects import SubjectError, parse_uplink
from backhaul_codec.words import WordError, read_word

from .continuity import LaneKey

if TYPE_CHECKING:
    from backhaul_codec.subjects import Uplink
    from backhaul_codec.words import Word


@dataclass(frozen=True, slots=True)
class Examined:
    """What one message of UP says."""

    key: LaneKey
    seq: int
    uplink: Uplink
    word: Word | None = None


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


def examine(subject: str, body: bytes) -> Examined:
    """Read one message as far as continuity needs, and check all the rest of it.

    Raises:
        UnreadableError: it is garbage, by its subject or its body.
    """
    try:
        uplink = parse_uplink(subject)
    except SubjectError as error:
        raise UnreadableError("subject", str(error)) from error
    try:
        header = check_placed(uplink, body)
    except CodecError as error:
        raise UnreadableError(error.code, error.reason, _place(uplink, body)) from error
    if header.epoch == 0 or header.seq == 0:
        raise UnreadableError("no_position", "the message has no epoch and seq of a lane")
    key = LaneKey(uplink.device, uplink.lane, header.epoch)
    try:
        return Examined(key, header.seq, uplink, read_word(uplink, header.epoch, body))
    except WordError as error:
        raise UnreadableError(error.kind, str(error), (key, header.seq)) from error


def _place(uplink: Uplink, body: bytes) -> tuple[LaneKey, int] | None:
    """Return the place in its lane of a message whose body is as it was sealed."""
    try:
        header, _ = unseal(body)
    except CodecError:
        return None
    if header.epoch == 0 or header.seq == 0:
        return None
    return LaneKey(uplink.device, uplink.lane, header.epoch), header.seq

"""Messages that pass a vehicle's link beside the streams, while nothing sources these: pushed up, or spoken down.

A lane that only trickles need not be sourced: a source's heartbeats cost its link more than the messages. The
vehicle appends each message to OUT as always, and publishes the same bytes once more, on a subject that only this
vehicle may use. The hub takes them into UP under the subject that a source would have given them. A push is not
acknowledged: the hub's watermark covers it, and where that stands still the lane is sourced again.

Likewise IN need not source DOWN. The hub says each message that it has put into DOWN for a vehicle once more, on a
subject that only this vehicle may hear; where the vehicle does not listen there, the server drops it. What is more
than passing has the vehicle source DOWN again, which brings the same message for good.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError

import msgspec

from backhaul_codec.wire.envelope import HASH_BYTES

PUSHES = "u.>"
"""The subjects of all vehicles' pushes."""


def push_subject(device: str, token: str, leaf_subject: str) -> str:
    """Return where a device pushes a message of its own subject; the token keeps others from forging it."""
    return f"u.{device}.{token}.{leaf_subject}"


BESIDE = "w.>"
"""The subjects of all that the hub speaks beside DOWN."""
WAKE = "s.wake"
"""Spoken beside only: IN is to be sourced, for there may be something that this vehicle has not heard."""
TERSE = "k."
"""A watermark that is spoken beside, in few bytes: of the lane that follows. Vehicles that read it say so."""
_WATERMARK = "s.watermark."
_TERSE = Struct("<IQ")  # epoch, seq; then the hash, where it is known
_PASSING = ("s.watermark.", "s.held.", "s.digest", "s.resend.")


def beside_subject(device: str, token: str, leaf_subject: str) -> str:
    """Return where the hub says a message for a device once more; no other device can listen."""
    return f"w.{device}.{token}.{leaf_subject}"


def is_passing(leaf_subject: str) -> bool:
    """Tell whether a message of the hub's only says how things stand: it is said again when they have changed.

    All others change something for good, and so count only once they have come through IN.
    """
    return leaf_subject.startswith(_PASSING)


class _Watermark(msgspec.Struct):
    epoch: int
    seq: int
    hash: str


def terse(leaf_subject: str, body: bytes) -> tuple[str, bytes] | None:
    """Return a watermark as subject and body in few bytes; None where it is none, or says more than those can.

    A third of the bytes of a watermark: an idle link of a vehicle that speaks now and then carries little else.
    """
    if not leaf_subject.startswith(_WATERMARK):
        return None
    try:
        words = msgspec.json.decode(body, type=_Watermark)
        said = _TERSE.pack(words.epoch, words.seq) + bytes.fromhex(words.hash)
    except (msgspec.MsgspecError, ValueError, StructError):
        return None
    short = TERSE + leaf_subject[len(_WATERMARK) :]
    return (short, said) if told(short, said) == (leaf_subject, body) else None


def told(leaf_subject: str, body: bytes) -> tuple[str, bytes] | None:
    """Return the watermark, subject and body as DOWN has them, that a terse one says; None for any other message."""
    size = len(body) - _TERSE.size
    if not leaf_subject.startswith(TERSE) or size not in (0, HASH_BYTES):
        return None
    epoch, seq = _TERSE.unpack_from(body)
    words = _Watermark(epoch, seq, body[_TERSE.size :].hex())
    return _WATERMARK + leaf_subject[len(TERSE) :], msgspec.json.encode(words)

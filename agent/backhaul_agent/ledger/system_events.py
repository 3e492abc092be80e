"""Messages of events on the live lane: the agent's own, and those that programs report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from backhaul_agent.ledger.rows import Outgoing
from backhaul_codec import Opaque, Point, encode_point
from backhaul_codec.kinds import STAMPED
from backhaul_codec.subjects import app_event_subject, event_subject
from backhaul_codec.wire.compression import Compression

JSON_DTYPE = 6


def event(kind: str, body: dict[str, Any], time_ns: int, *, packed: bool = False) -> Outgoing:
    """Return the message of an event, ready to be committed: a point whose value is JSON.

    ``packed``: whether it is deflated, which pays for a long one.
    """
    value = Opaque(JSON_DTYPE, msgspec.json.encode(body))
    point = Point(node="", type=kind, time=time_ns, value=value)
    compression: Compression = "deflate" if packed else "none"
    sealed = encode_point(point, epoch=0, seq=0, compression=compression)
    return Outgoing("live", event_subject(kind), sealed)


def app_event(kind: str, body: dict[str, Any], time_ns: int, boot: int) -> Outgoing:
    """Return the message of an event that a program reported; ``boot`` as of `Outgoing`.

    Raises:
        CodecError: the kind is no name.
    """
    value = Opaque(JSON_DTYPE, msgspec.json.encode({"kind": kind} | body))
    point = Point(node="", type=kind, time=time_ns, value=value)
    body_ = encode_point(point, epoch=0, seq=0)
    return Outgoing("live", app_event_subject(kind), body_, times=(time_ns, time_ns), boot=boot)


def epoch_event(old: int, new: int, last_seqs: dict[str, int], why: str, time_ns: int) -> Outgoing:
    """Return the word that a new epoch took the place of an old one, with the ends of its lanes."""
    return event("epoch", {"old": old, "new": new, "why": why, "lanes": last_seqs}, time_ns)


def receipt(
    lane: str, epoch: int, lo: int, hi: int, reason: str, time_ns: int, chain: bytes | None = None
) -> Outgoing:
    """Return the receipt that explains a gap: seqs ``lo..hi`` of a lane will never come.

    ``chain``: the hash that the message behind them has for its link, where that is known.
    """
    body: dict[str, Any] = {"lane": lane, "epoch": epoch, "lo": lo, "hi": hi, "reason": reason}
    if chain is not None:
        body["chain"] = chain.hex()
    return event("receipt", body, time_ns)


def marked(messages: Sequence[Outgoing], boot: int) -> list[Outgoing]:
    """Return messages with a mark on all that the agent stamps itself: the stamps wait for ``boot``, 0 for none.

    To be called in the same turn in which they were stamped.
    """
    if not boot:
        return list(messages)
    return [
        message._replace(boot=boot) if message.subject.startswith(STAMPED) else message
        for message in messages
    ]

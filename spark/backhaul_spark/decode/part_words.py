"""Find vehicles' words about their own lanes in a chunk of messages. Executor side.

Receipts, marks and ended epochs go to tables of their own, with the message's place in the stream,
so that what a repeated message says is dropped with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]

from backhaul_codec import CodecError
from backhaul_codec.assurance.completeness import HOUR_NS
from backhaul_codec.protocol.words import (
    EpochWord,
    ImportWord,
    MarkWord,
    Receipt,
    WordError,
    read_word,
)
from backhaul_codec.subjects import IMPORT
from backhaul_codec.wire.envelope import unseal
from backhaul_spark.nats.messages import leaf_of

if TYPE_CHECKING:
    from backhaul_spark.decode.points import Decoded

# The subjects that say something; all others are not looked at twice.
_ENDS = (".e.receipt", ".e.mark", ".e.epoch", ".e.import")
# A vehicle that claims to speak from the future says nothing of an hour (as at the hub).
_FUTURE_US_MAX = 5_000_000


class PartWords:
    """The rows of receipts, marks and ended_epochs of one task."""

    def __init__(self) -> None:
        self.receipts: list[dict[str, Any]] = []
        self.marks: list[dict[str, Any]] = []
        self.ended: list[dict[str, Any]] = []

    def take(self, decoded: Decoded) -> None:
        """Take in a chunk."""
        for row, message in _messages(decoded, _interesting(decoded)):
            place = {name: message[name] for name in ("stream", "stream_seq", "device")}
            if row in decoded.rejected:
                self._unreadable(place, message, decoded.rejected[row][0])
            else:
                self._word(place, message)

    def _word(self, place: dict[str, Any], message: dict[str, Any]) -> None:
        try:
            word = read_word(leaf_of(message["subject"]), message["epoch"], message["body"])
        except WordError as error:
            self._unreadable(place, message, error.kind)
            return
        match word:
            case Receipt():
                self.receipts.append(
                    place
                    | {"lane": word.lane, "epoch": word.epoch, "lo": word.low, "hi": word.high}
                    | {"reason": word.reason}
                )
            case MarkWord():
                if word.time_ns <= (message["stored_us"] + _FUTURE_US_MAX) * 1000:
                    self.marks.append(
                        place
                        | {"epoch": word.epoch, "seq": message["seq"], "time_ns": word.time_ns}
                        | {"lanes": json.dumps(dict(word.lanes)), "why": word.why}
                        | {"chain": json.dumps(dict(word.chain))}
                    )
            case ImportWord():
                # In no lane that a vehicle can name in a mark (completeness/facts.py).
                lanes = json.dumps({IMPORT: message["seq"]})
                self.marks += [
                    place
                    | {"epoch": message["epoch"], "seq": message["seq"], "time_ns": hour * HOUR_NS}
                    | {"lanes": lanes, "why": IMPORT}
                    for hour, _ in word.hours
                ]
            case EpochWord():
                self.ended.append(
                    place
                    | {"old": word.old, "new": word.new, "time_ns": word.time_ns}
                    | {"lanes": json.dumps(dict(word.lanes)), "why": word.why}
                )

    def _unreadable(self, place: dict[str, Any], message: dict[str, Any], code: str) -> None:
        """Explain a message that is as the vehicle sealed it: sent again it would be no better."""
        if message["lane"] is None or message["seq"] is None:
            return
        try:
            unseal(message["body"])
        except CodecError:
            return
        seq = message["seq"]
        self.receipts.append(
            place
            | {"lane": message["lane"], "epoch": message["epoch"], "lo": seq, "hi": seq}
            | {"reason": f"unreadable: {code}"}
        )


def _interesting(decoded: Decoded) -> list[int]:
    subjects = decoded.messages.column("subject").to_pylist()
    return [
        row
        for row, subject in enumerate(subjects)
        if subject and (row in decoded.rejected or subject.endswith(_ENDS))
    ]


def _messages(decoded: Decoded, rows: list[int]) -> Iterator[tuple[int, dict[str, Any]]]:
    # All of them at once: a fleet that starts, or enters an hour, sends a mark a vehicle.
    picked = decoded.messages.take(pa.array(rows, pa.int64()))
    stored_us = picked.column("stored_at").cast(pa.int64()).to_pylist()
    messages = picked.drop_columns(["stored_at"]).to_pylist()
    for row, message, at_us in zip(rows, messages, stored_us, strict=True):
        if message["missing"] is None:  # of a gap there is nothing to read
            yield row, message | {"stored_us": at_us}

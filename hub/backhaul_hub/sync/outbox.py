"""Messages that wait to be written into DOWN. `Publisher` alone does I/O.

DOWN keeps one message a subject, so what is published is never what somebody wrote but how the
heads are now: a series' head, or all heads of a node. Whatever is published late, again or in
another order, the device comes to the same heads.

Writes are durable: their subjects are in table `outbox` from the transaction that stored the heads
until DOWN has acknowledged them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import structlog
from nats.errors import Error as NatsError

from backhaul_codec import CodecError, encode_frame, encode_point
from backhaul_codec.state.merge import Head, HeadKey, Heads
from backhaul_codec.subjects import (
    edge_frame_subject,
    edge_subject,
    node_frame_subject,
    parse_leaf,
    point_subject,
)
from backhaul_codec.wire.addressed import edge_frame_points
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.store import Registry
from backhaul_hub.device import Device
from backhaul_hub.errors import HubError
from backhaul_hub.lane_names import down_subject
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.sync.heads import FleetHeads
from backhaul_runtime.trouble import Trouble

log = structlog.get_logger(__name__)


BODY_BYTES_MAX = 1_900_000
"""The leaf takes messages of 2 MB, subject and headers included."""


class Lacking(NamedTuple):
    """One subject that DOWN lacks."""

    device: str
    subject: str
    """As on the vehicle."""
    turn: int
    """Grows with every row: whoever wrote the subject again since, has another."""
    durable: bool = True
    """Whether it stands in table `outbox`."""


class Outbox:
    """The subjects that DOWN lacks, oldest first."""

    def __init__(self) -> None:
        self._lacking: dict[tuple[str, str], Lacking] = {}
        self._last_turn = 0

    def restore(self, rows: Iterable[Lacking]) -> None:
        """Take in the stored rows."""
        for row in sorted(rows, key=lambda row: row.turn):
            self.add(row)
            self._last_turn = row.turn

    def row(self, device: str, subject: str, *, durable: bool = True) -> Lacking:
        """Return the row that says that DOWN lacks a subject; `add` it once it is stored."""
        self._last_turn += 1
        return Lacking(device, subject, self._last_turn, durable)

    def add(self, row: Lacking) -> None:
        """Take in that a subject is to be published."""
        known = self._lacking.pop(row[:2], None)  # so that it goes to the end
        if known is not None and known.durable:
            row = row._replace(durable=True)
        self._lacking[row[:2]] = row

    def first(self) -> Lacking | None:
        """Return the next messages to publish."""
        return next(iter(self._lacking.values()), None)

    def done(self, row: Lacking) -> None:
        """Take in that a subject was published, as it was when `first` returned it."""
        if self._lacking.get(row[:2]) == row:
            del self._lacking[row[:2]]

    def waiting(self, device: str) -> int:
        """Count a device's subjects that DOWN lacks."""
        return sum(known == device for known, _ in self._lacking)


def insertion(rows: Iterable[Lacking]) -> RowChange:
    """Return the statement that stores messages which DOWN lacks."""
    return RowChange("INSERT OR REPLACE INTO outbox VALUES (?, ?, ?)", [row[:3] for row in rows])


def removal(rows: Iterable[Lacking]) -> RowChange:
    """Return the statement that forgets messages in DOWN; not where one was written again since."""
    return RowChange(
        # A row that was not durable itself may have taken the turn of one that was.
        "DELETE FROM outbox WHERE device = ? AND subject = ? AND turn <= ?",
        [row[:3] for row in rows],
    )


def subject_of(keys: list[HeadKey]) -> str:
    """Return the subject for a write of these series, all of one node (or one edge and its node).

    One series goes alone; several go as a frame, applied whole or not at all.
    Raises: SubjectError.
    """
    first = keys[0]
    parent = next((key.parent for key in keys if key.parent), "")
    if len(keys) > 1:
        return edge_frame_subject(parent, first.node) if parent else node_frame_subject(first.node)
    if parent:
        return edge_subject(*first)
    return point_subject(*first[1:])


def messages_of(heads: Heads, subject: str) -> list[tuple[str, bytes]]:
    """Return the messages for a leaf subject that begins with `p.`, as the heads are now.

    It is one, but where a frame has become too large: then the heads go one by one. Without heads
    there is none.
    """
    keys = keys_of(heads, subject)
    if not keys:
        return []
    if parse_leaf(subject).frame:
        with contextlib.suppress(CodecError):
            return [(subject, frame_of(heads, keys))]
        log.warning("frame_too_large", subject=subject)
    return [(subject_of([key]), _message(heads, key)) for key in keys]


def keys_of(heads: Heads, subject: str) -> list[HeadKey]:
    """Return the series whose heads belong on a subject.

    In a frame these are all of its node. In a frame of an edge they are those of the node below as
    well: it may stand in the stream in the place of the one that made the node.
    """
    place = parse_leaf(subject)
    assert place.node is not None
    if place.type is not None:
        key = HeadKey(place.parent or "", place.node, place.type, place.key or "")
        return [key] if heads.get(key) is not None else []
    return [key for key in heads.of_node(place.node) if key.parent in ("", place.parent)]


def frame_of(heads: Heads, keys: Iterable[HeadKey], extra: Mapping[HeadKey, Head] = {}) -> bytes:
    """Return the frame of these series; `extra` are heads that are not merged yet.

    Raises: CodecError (`size`): it would not fit through a leaf.
    """
    found = {key: extra.get(key) or heads.get(key) for key in keys}
    edge = [head.to_point(key) for key, head in found.items() if head and key.parent]
    own = [head.to_point(key) for key, head in found.items() if head and not key.parent]
    body = encode_frame(edge_frame_points(edge, own) if edge else own, epoch=0, seq=0)
    if len(body) > BODY_BYTES_MAX:
        raise CodecError(
            f"all points of the node come to {len(body)} bytes, {BODY_BYTES_MAX} fit into one"
            " message: write them one by one",
            "size",
        )
    return body


def _message(heads: Heads, key: HeadKey) -> bytes:
    head = heads.get(key)
    assert head is not None
    return encode_point(head.to_point(key), epoch=0, seq=0)


def frame_subjects(heads: Heads, node: str) -> list[str]:
    """Return the subjects of the frames that hold all of a node's heads and its edges'."""
    parents = {key.parent for key in heads.of_node(node)}
    return [
        edge_frame_subject(parent, node) if parent else node_frame_subject(node)
        for parent in sorted(parents)
        if parent or parents == {""}
    ]


@dataclass(eq=False)
class Publisher:
    """Writes the outbox's messages into DOWN, oldest first, and takes them out again.

    Args:
        devices: as they are now: where a node's points go depends on its device.
    """

    _outbox: Outbox
    _heads: FleetHeads
    _api: JetStreamApi
    _registry: Registry
    _devices: Callable[[], Mapping[str, Device]]

    def __post_init__(self) -> None:
        self._due = asyncio.Event()
        self._due.set()

    def wake(self) -> None:
        """Look into the outbox again."""
        self._due.set()

    async def run(self) -> None:
        """Publish until cancelled; trouble is logged once and waited out."""
        trouble = Trouble(log, "down_not_written", HubError, NatsError, OSError)
        while True:
            await self._due.wait()
            self._due.clear()
            async with trouble:
                while (row := self._outbox.first()) is not None:
                    await self._publish(row)
                    trouble.end()
            if trouble.now:
                self._due.set()

    async def _publish(self, row: Lacking) -> None:
        # Until the acknowledgement the heads may change again: then the row has another turn, and
        # `done` leaves it.
        for subject, body in messages_of(self._heads.of(row.device).heads, row.subject):
            await self._api.publish(self._down_subject(row.device, subject), body)
        if row.durable:
            await self._registry.write([removal([row])])
        self._outbox.done(row)

    def _down_subject(self, device: str, subject: str) -> str:
        known = self._devices().get(device)
        return down_subject(known, subject) if known else f"in.{device}.{subject}"

"""Telling changes to listeners at the hub, along the tree.

A point of a node goes to `up.<ancestor>.<node>.<type>.<key>` for the node itself and for every
ancestor, so that one subscription `up.<group>.>` sees a whole subtree however deep. Ancestor and
node are addresses (sync/tree.py), each one token. Besides, every head that changes goes to
`hub.changed.<device>`. Core NATS in account HUB, nothing is stored: who was not there has the heads,
the twin and the history.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

import msgspec
import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError

from backhaul_codec.state.json_values import value_to_json
from backhaul_codec.state.merge import HeadKey
from backhaul_codec.subjects import encode_token
from backhaul_hub.device import FLEET
from backhaul_hub.sync.core import Announcement
from backhaul_hub.sync.newest_readings import NewReading, point_json
from backhaul_hub.sync.tree import address_of
from backhaul_runtime.patched_client import PatchedClient

log = structlog.get_logger(__name__)

WAITING_MAX, WAITING_BYTES_MAX = 100_000, 64 << 20
"""Payloads, and their bytes. Listeners get no more than the newest of what the hub has no time to tell them."""

_AT_ONCE, _AT_ONCE_BYTES = 256, 1 << 18

_encode = msgspec.json.Encoder().encode


class Told(NamedTuple):
    """One payload and all subjects that it goes to."""

    subjects: tuple[str, ...]
    payload: bytes


def changed_subject(device: str) -> str:
    """Return where every change of a device's heads is told."""
    return f"hub.changed.{device}"


def up_subjects(device: str, key: HeadKey, ancestors: Iterable[str]) -> tuple[str, ...]:
    """Return where a point is told along the tree; `ancestors` are subject tokens."""
    if device == FLEET or key.node == device:
        address = encode_token(address_of(device, key.node))
    else:
        # As `address_of` puts it, and an id is a token as it is: a large fleet has too many addresses to keep all.
        address = f"{device}{_below(key.node)}"
    series = f"{address}.{_series(key.type, key.key)}"
    return tuple([f"up.{ancestor}.{series}" for ancestor in ancestors])


@lru_cache(16_384)
def _below(node: str) -> str:
    return encode_token(f"/{node}")


@lru_cache(16_384)
def _series(type_: str, key: str) -> str:
    return f"{encode_token(type_)}.{encode_token(key)}"


def told(announcement: Announcement, *, along_the_tree: bool) -> Told:
    """Return the messages for a head that changed."""
    device, key, head, _ = announcement.change
    subjects: tuple[str, ...] = (changed_subject(device),)
    if along_the_tree:
        subjects += up_subjects(device, key, announcement.tokens)
    return Told(subjects, _encode(point_json(device, key, head)))


def told_reading(new: NewReading, ancestors: Iterable[str]) -> Told:
    """Return the messages for a newer reading; `ancestors` are subject tokens."""
    series, (time, value) = new.series, new.reading
    subjects = up_subjects(new.device, HeadKey("", *series), ancestors)
    shown, dtype = value_to_json(value)
    payload = _encode(_Reading(new.device, *series, time, shown, dtype))
    return Told(subjects, payload)


class _Reading(msgspec.Struct):
    """A reading as `point_json` says it, at half the cost."""

    device: str
    node: str
    type: str
    key: str
    time: int
    value: Any
    dtype: str
    tombstone: int = 0
    origin: str = ""


class Rebroadcast:
    """Publishes messages in order; drops the oldest where it cannot keep up.

    Args:
        client: a connection in account HUB, a `PatchedClient`.
    """

    def __init__(self, client: Client) -> None:
        self._client = cast("PatchedClient", client)
        self._waiting: deque[Told] = deque()
        self._waiting_bytes = 0
        self._due = asyncio.Event()
        self.published = 0
        """Messages."""
        self.dropped = 0
        """Payloads, each for several subjects."""

    def tell(self, some: Iterable[Told]) -> None:
        """Have messages published soon."""
        for each in some:
            self._waiting.append(each)
            self._waiting_bytes += len(each.payload)
        while len(self._waiting) > WAITING_MAX or self._waiting_bytes > WAITING_BYTES_MAX:
            self._next()
            self.dropped += 1
        if self._waiting:
            self._due.set()

    async def run(self) -> None:
        """Publish until cancelled. While the server is away, nobody listens either."""
        while True:
            await self._due.wait()
            self._due.clear()
            while self._waiting:
                await self._publish(self._next_ones())
                # To publish is to fill a buffer: nobody else would get a turn by that.
                await asyncio.sleep(0)

    def _next_ones(self) -> list[Told]:
        some, size = list[Told](), 0
        while self._waiting and len(some) < _AT_ONCE and size < _AT_ONCE_BYTES:
            some.append(self._next())
            size += len(some[-1].subjects) * len(some[-1].payload)
        return some

    def _next(self) -> Told:
        one = self._waiting.popleft()
        self._waiting_bytes -= len(one.payload)
        return one

    async def _publish(self, some: Sequence[Told]) -> None:
        if not self._client.is_connected:
            self.dropped += len(some)
            return
        fit = [each for each in some if len(each.payload) <= self._client.max_payload]
        self.dropped += len(some) - len(fit)
        every = [(subject, b"", each.payload) for each in fit for subject in each.subjects]
        try:
            await self._client.publish_many(every)
        except NatsError as error:
            self.dropped += len(fit)
            log.warning("not_told", subject=every[0][0], error=repr(error))
        else:
            self.published += len(every)

"""What a stream holds: read from outside, decoded, and counted against what was acknowledged."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from backhaul_codec.bulk.columns import decode_columns
from backhaul_hub.errors import HubError
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.nats.stream_reader import Stored, StoredReader
from backhaul_hub.shards import inbox_subject
from tests.support.errors import LostDataError, TrialError
from tests.support.numbered_points import FIRST_NS, PASS_NS, SERIES
from tests.support.rig.patient import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from nats.aio.client import Client
    from nats.aio.msg import Msg

_READ_MESSAGES = 500

Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]


async def read_stream(client: Client, stream: str) -> list[tuple[str, bytes]]:
    """Return (subject, body) of every message in a stream, in order.

    Raises:
        TrialError: the server does not hand them out.
    """
    return [(each.subject, each.body) async for batch in batches(client, stream) for each in batch]


async def batches(client: Client, stream: str) -> AsyncIterator[list[Stored]]:
    """Yield every message in a stream, in order, some hundred at a time.

    Raises:
        TrialError: the server does not hand them out.
    """
    reader = StoredReader(client, stream, timeout_s=PATIENCE_S)
    seq = 1
    try:
        while batch := await reader.read(seq, _READ_MESSAGES):
            yield batch
            seq = batch[-1].seq + 1
    except HubError as error:
        raise TrialError(f"{stream} does not hand out its messages") from error


def numbers_in(frames: list[tuple[str, bytes]]) -> Numbers:
    """Return the numbers of all readings in frames made of `load.point`s, in stream order."""
    if not frames:
        return np.empty(0, dtype=np.int64)
    columns = decode_columns([body for _, body in frames])
    passes = (columns.column("time").to_numpy().astype(np.int64) - FIRST_NS) // PASS_NS
    series = pc.index_in(columns.column("type").cast(pa.string()), value_set=pa.array(SERIES))
    numbers: Numbers = passes * len(SERIES) + series.to_numpy().astype(np.int64)
    return numbers


def require_exactly(where: str, found: Numbers, expected: Numbers) -> None:
    """Check that every expected number is there once, and no other.

    Raises:
        LostDataError: it is not so.
    """
    unique = np.unique(found)
    missing = len(np.setdiff1d(expected, unique, assume_unique=True))
    foreign = len(np.setdiff1d(unique, expected, assume_unique=True))
    doubled = len(found) - len(unique) + foreign
    if missing or doubled:
        raise LostDataError(where, missing=missing, doubled=doubled)


class Tail:
    """Sees every message of a stream the moment it is stored."""

    def __init__(self, client: Client, stream: str, on_message: Callable[[Msg], None]) -> None:
        self._client = client
        self._stream = stream
        self._on_message = on_message
        self.changed = asyncio.Event()

    async def start(self) -> None:
        """Begin at the stream's beginning."""
        inbox = inbox_subject(self._stream, self._client.new_inbox())

        async def take(message: Msg) -> None:
            self._on_message(message)
            self.changed.set()

        await self._client.subscribe(inbox, cb=take)
        await JetStreamApi(self._client).request(
            f"CONSUMER.CREATE.{self._stream}",
            {
                "stream_name": self._stream,
                "config": {
                    "deliver_subject": inbox,
                    "deliver_policy": "all",
                    "ack_policy": "none",
                    "mem_storage": True,
                },
            },
        )

    async def until(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Wait until something has become true through what arrived.

        Raises:
            TrialError: it has not, in time.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while not condition():
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            raise TrialError(f"{self._stream}: {what}: not in {timeout_s:.0f} s") from None

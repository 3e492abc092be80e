"""Reading a stream by sequence: batches of direct gets, no consumer on the server.

The position lives in hub.db and nowhere else, so there is nothing that could disagree with it.
Spec: nats-server's ADR-31 (JetStream direct get), with batches.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from backhaul_hub.errors import HubError
from backhaul_hub.shards import api_subject
from backhaul_runtime.jetstream import stamp_ns

# nats-py drops what a subscription has not taken beyond 128 MB; a batch stays far below.
_BATCH_BYTES = 16 << 20
_END_OF_BATCH = "204"
_NOT_FOUND = "404"
_NOBODY = "503"


@dataclass(frozen=True, slots=True)
class Stored:
    """One message as a stream holds it."""

    seq: int
    subject: str
    body: bytes
    stored_ns: int
    """When the stream took it in; ns since the Unix epoch."""


class StoredReader:
    """Reads one stream over one connection. One read at a time.

    Any server of a cluster may answer, and lack the newest of what the stream's leader has: what is
    not in an answer is not known to be gone (`JetStreamApi.first_message` knows).

    Args:
        timeout_s: the longest silence within a batch.
    """

    def __init__(self, client: Client, stream: str, *, timeout_s: float = 5.0) -> None:
        self._client = client
        self._stream = stream
        self._timeout_s = timeout_s

    async def read(self, seq: int, messages_max: int, *, subject: str = "") -> list[Stored]:
        """Return up to `messages_max` messages from `seq` on, in order; none at the end.

        `subject`: only those on subjects that fit it.

        Raises:
            HubError: the stream or the server is not there, or a batch came in pieces.
        """
        inbox = self._client.new_inbox()
        subscription = await self._client.subscribe(inbox)
        try:
            request = {"seq": seq, "batch": messages_max, "max_bytes": _BATCH_BYTES}
            only = {"next_by_subj": subject} if subject else {}
            api = api_subject(f"DIRECT.GET.{self._stream}")
            await self._client.publish(api, json.dumps(request | only).encode(), reply=inbox)
            return await self._batch(subscription)
        finally:
            if not self._client.is_closed:
                await subscription.unsubscribe()

    async def _batch(self, subscription: Subscription) -> list[Stored]:
        found: list[Stored] = []
        while True:
            try:
                async with asyncio.timeout(self._timeout_s):
                    message = await subscription.next_msg(timeout=None)
            except TimeoutError:
                raise HubError(f"{self._stream}: no answer in {self._timeout_s:g} s") from None
            headers = message.headers or {}
            # Headers that came with a stored message stand before those the server adds, and the
            # last of a name wins. So none of the server's can be forged, and only a stored
            # message has a sequence; its "Status" says nothing.
            if "Nats-Sequence" in headers:
                found.append(_stored(message, headers))
                continue
            match headers.get("Status"):
                case status if status == _NOT_FOUND:
                    return []
                case status if status == _END_OF_BATCH:
                    last = int(headers.get("Nats-Last-Sequence", 0))
                    if found and found[-1].seq != last:
                        raise HubError(f"{self._stream}: a batch up to {last} came in pieces")
                    return found
                case status if status == _NOBODY:
                    raise HubError(f"{self._stream}: no JetStream behind it, or no such stream")
                case status:
                    why = headers.get("Description", "")
                    raise HubError(f"{self._stream}: direct get answers {status} {why}")


def _stored(message: Msg, headers: dict[str, str]) -> Stored:
    return Stored(
        seq=int(headers["Nats-Sequence"]),
        subject=headers["Nats-Subject"],
        body=message.data,
        stored_ns=stamp_ns(headers["Nats-Time-Stamp"]),
    )


def holes(seqs: Iterable[int], lo: int, hi: int) -> Iterator[tuple[int, int]]:
    """Return the missing seqs of `lo` to `hi` in ascending seqs, as ranges."""
    for seq in seqs:
        if seq > lo:
            yield lo, seq - 1
        lo = seq + 1
    if lo <= hi:
        yield lo, hi

"""The JetStream API as plain JSON requests.

nats-py's typed configurations do not know durable sources, the flow_control ack policy or every
2.15 field; a dict sent and a dict received loses nothing.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import count
from typing import Any, cast

from nats.aio.client import Client
from nats.errors import NoRespondersError

from backhaul_hub.errors import HubError, JetStreamError
from backhaul_hub.shards import api_subject
from backhaul_runtime.jetstream import (
    ACCOUNT_NOT_ENABLED,
    CLUSTER_NOT_AVAILABLE,
    NO_SUITABLE_PEERS,
    STREAM_NOT_MADE,
    TOO_FEW_PEERS,
    Refusal,
    read_answer,
    stamp_ns,
)
from backhaul_runtime.jetstream_calls import JetStreamCalls
from backhaul_runtime.patched_client import PatchedClient

Json = dict[str, Any]
Publication = tuple[str, bytes]
"""A subject and a body."""

_BATCH_MESSAGES, _BATCH_BYTES = 500, 1 << 20
# A batch costs each message some 60 bytes of headers on the way to its vehicle: fewer go one by one.
_BATCH_FEWEST = 8
_AGAIN_S = 0.25
# A server that has lost the leader drops a request without a word: whoever waits a whole time limit for it
# waits on when there is a leader again. Longer each time, lest a server that is slow has ever more to do.
_FIRST_S = 0.5
# Said while another connection has the server load the account, and in a cluster while its leader loads
# it: that is in use before its store is (`setup.hub_directory.create_hub` makes the store's directory;
# one may have been emptied since).
_LOADING = frozenset({ACCOUNT_NOT_ENABLED, STREAM_NOT_MADE})
_LOADING_S = 2.5
# Said for want of a leader, or of a server. No peers are suitable, too, while servers that have just
# started do not all know one another; too few have room for a consumer while its stream is being copied to more.
_LEADERLESS = frozenset({CLUSTER_NOT_AVAILABLE, NO_SUITABLE_PEERS, TOO_FEW_PEERS})
# A server that is parted from the others may answer for a stream by itself, for as long as it is, with what it
# held then; it names no leader (2.15.1). A server that runs alone speaks of no cluster.
_LED = {"leader": ""}
_NOBODY_LEADS = Refusal(503, CLUSTER_NOT_AVAILABLE, "the server that answered knows no leader")


class JetStreamApi(JetStreamCalls):
    """JetStream API requests over one connection, for the streams of its account and the shards of UP.

    Args:
        client: a connection in the account whose JetStream is meant; for batches a `PatchedClient`.
        timeout_s: how long one request may take, by the event loop's clock.
        patience_s: for how long a request that is not answered is made again, as while a cluster
            chooses a leader. A publication is not made again: it may have been stored. A request that the
            server refuses while it loads the account is made again in any case.
    """

    def __init__(self, client: Client, *, timeout_s: float = 10.0, patience_s: float = 0.0) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._patience_s = patience_s
        self.on_stored: Callable[[Json], None] = lambda _: None
        """Hears each acknowledgement of what was published."""
        self.on_published: Callable[[Sequence[Publication]], Awaitable[None]] = _nobody
        """Hears of the messages that a stream has taken, those of a batch together."""
        self._batch_ids = map(f"{secrets.token_hex(3)}{{:x}}".format, count())

    async def request(
        self,
        verb: str,
        body: Json | None = None,
        *,
        api: str = "",
        timeout_s: float | None = None,
    ) -> Json:
        """Ask for an action, as `STREAM.INFO.UP_00`, and return the answer.

        Args:
            verb: the action. The stream that it names says which account is asked.
            body: of the request.
            api: the API of which account, for an action that names no stream, as `shards.API`.
            timeout_s: other than usual.

        Raises:
            JetStreamError: the server answered with an error.
            HubError: nobody answered in time.
        """
        payload = json.dumps(body).encode() if body is not None else b""
        subject = f"{api}.{verb}" if api else api_subject(verb)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        longest_s = timeout_s or self._timeout_s
        wait_s = min(longest_s, _FIRST_S) if self._patience_s else longest_s
        while True:
            try:
                return self._led(verb, await self._ask(subject, payload, None, wait_s))
            except HubError as error:
                wait_s = min(longest_s, 1.5 * wait_s)
                if loop.time() - began_s >= self._passes_s(error):
                    raise
            await asyncio.sleep(_AGAIN_S)

    def _led(self, verb: str, answer: Json) -> Json:
        """Return an answer of a server that knows the leader. Raises: JetStreamError: it does not."""
        if ".INFO." in verb and "leader" not in answer.get("cluster", _LED):
            raise self.refused(verb, _NOBODY_LEADS)
        return answer

    def _passes_s(self, error: HubError) -> float:
        """Return for how long to ask again after this error; 0 where it is by the request's contents."""
        if not isinstance(error, JetStreamError) or error.err_code in _LEADERLESS:
            return self._patience_s
        return max(_LOADING_S, self._patience_s) if error.err_code in _LOADING else 0.0

    async def publish(
        self, subject: str, payload: bytes, headers: dict[str, str] | None = None
    ) -> Json:
        """Store a message in the stream that takes this subject; return the acknowledgement.

        Raises:
            JetStreamError: the stream refused it.
            HubError: no stream takes it, or there was no answer in time.
        """
        answer = await self._ask(subject, payload, headers)
        self.on_stored(answer)
        await self.on_published([(subject, payload)])
        return answer

    async def publish_all(
        self,
        messages: Sequence[Publication],
        *,
        taken: Callable[[Sequence[Publication]], None] = lambda _: None,
    ) -> None:
        """Store messages in the stream that takes all their subjects; it must allow atomic batches (ADR-50).

        Each batch is stored whole or not at all, and synced to disk once.

        Args:
            messages: in their order.
            taken: hears of each part of the messages, in their order, once it is stored.

        Raises:
            JetStreamError: the stream refused; what `taken` has not heard of is not stored.
            HubError: there was no answer in time: what `taken` has not heard of may be stored.
        """
        for batch in _batches(messages):
            if len(batch) < _BATCH_FEWEST:
                for subject, body in batch:
                    await self.publish(subject, body)
                    taken([(subject, body)])
                continue
            self.on_stored(await self._ask_batch(batch))
            taken(batch)
            await self.on_published(batch)

    async def _ask_batch(self, batch: Sequence[Publication]) -> Json:
        """Publish a batch; the answer is to its last message."""
        *others, (subject, body) = batch
        batch_id = next(self._batch_ids)
        begin = f"NATS/1.0\r\nNats-Batch-Id: {batch_id}\r\nNats-Batch-Sequence: "
        blocks = [f"{begin}{number}\r\n\r\n".encode() for number in range(1, len(batch))]
        await cast("PatchedClient", self._client).publish_many(
            (other, block, content) for (other, content), block in zip(others, blocks, strict=True)
        )
        headers = {
            "Nats-Batch-Id": batch_id,
            "Nats-Batch-Sequence": str(len(batch)),
            "Nats-Batch-Commit": "1",
        }
        return await self._ask(subject, body, headers)

    async def _ask(
        self,
        subject: str,
        payload: bytes,
        headers: dict[str, str] | None,
        timeout_s: float | None = None,
    ) -> Json:
        timeout_s = timeout_s or self._timeout_s
        try:
            # nats-py's own time limit is asyncio.wait_for, which before Python 3.12 loses a
            # cancellation that comes together with the answer (bpo-37658).
            async with asyncio.timeout(timeout_s):
                message = await self._client.request(
                    subject,
                    payload,
                    timeout=None,  # type: ignore[arg-type]
                    headers=headers,
                )
        except NoRespondersError:
            raise HubError(
                f"no JetStream behind {subject}", hint="does this user belong to account HUB?"
            ) from None
        except TimeoutError:
            raise HubError(f"no answer to {subject} in {timeout_s:g} s") from None
        answer, refusal = read_answer(message.data)
        if refusal is not None:
            raise self.refused(subject, refusal)
        return answer

    def refused(self, verb: str, refusal: Refusal) -> JetStreamError:
        """Return the hub's error for a refusal."""
        return JetStreamError(verb, refusal.err_code, refusal.description, refusal.code)

    async def first_message(self, stream: str, seq: int) -> tuple[int, int] | None:
        """Return the first message from `seq` on: seq, stored_ns. Raises: HubError, as `message`."""
        found = await self.message(stream, seq=seq, next_by_subj=">")
        return found and (found.seq, stamp_ns(found.time))

    async def last_seq(self, stream: str, subject: str) -> int:
        """Return the sequence of the last message on a subject, 0 for none. Raises: HubError, as `message`."""
        found = await self.message(stream, last_by_subj=subject)
        return found.seq if found else 0


def _batches(messages: Sequence[Publication]) -> Iterator[Sequence[Publication]]:
    """Yield messages in parts that the server takes as one batch."""
    start = size = 0
    for at, (_, body) in enumerate(messages):
        if at - start >= _BATCH_MESSAGES or (size and size + len(body) > _BATCH_BYTES):
            yield messages[start:at]
            start, size = at, 0
        size += len(body)
    if start < len(messages):
        yield messages[start:]


async def _nobody(messages: Sequence[Publication]) -> None:
    """Hear of messages, and do nothing."""

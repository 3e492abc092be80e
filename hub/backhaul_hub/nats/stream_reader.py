"""Reading a stream by sequence: batches of direct gets, no consumer on the server.

The position lives in hub.db and nowhere else, so there is nothing that could disagree with it.
Spec: nats-server's ADR-31 (JetStream direct get), with batches.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, cast

from nats.aio.client import Client

from backhaul_hub.errors import HubError
from backhaul_hub.shards import api_subject
from backhaul_runtime.jetstream import stamp_ns
from backhaul_runtime.patched_client import PatchedClient

# Of one stream at a time. More than a message, since a read may begin with one that is known.
_BATCH_BYTES = 16 << 20
# As the server ends the headers of a stored message: those that came with it stand before.
_STREAM = b"\r\nNats-Stream: "
_STORED = re.compile(
    rb"\r\nNats-Stream: [^\r]+\r\nNats-Subject: ([^\r]+)\r\nNats-Sequence: (\d+)\r\n"
    rb"Nats-Time-Stamp: ([^\r]+)\r\n"
)
_END_OF_BATCH = "204"
_NOT_FOUND = "404"
_NOBODY = "503"


class Stored(NamedTuple):
    """One message as a stream holds it."""

    seq: int
    subject: str
    body: bytes
    stored_ns: int
    """When the stream took it in; ns since the Unix epoch."""


class ReadQuestion(NamedTuple):
    """A question for messages: up to `messages_max` of a stream, from `seq` on; on subjects that fit `subject`."""

    stream: str
    seq: int
    messages_max: int
    subject: str = ""


class StoredReader:
    """Reads one stream over one connection. One read at a time.

    Any server of a cluster may answer, and lack the newest of what the stream's leader has: what is
    not in an answer is not known to be gone (`JetStreamApi.first_message` knows).

    Args:
        client: a `PatchedClient`.
        timeout_s: the longest silence within a batch.
    """

    def __init__(self, client: Client, stream: str, *, timeout_s: float = 5.0) -> None:
        self._client = client
        self.stream = stream
        self._timeout_s = timeout_s

    async def read(self, seq: int, messages_max: int, *, subject: str = "") -> list[Stored]:
        """Return up to `messages_max` messages from `seq` on, in order; none at the end.

        `subject`: only those on subjects that fit it.

        Raises:
            HubError: the stream or the server is not there, or a batch came in pieces.
        """
        wanted = ReadQuestion(self.stream, seq, messages_max, subject)
        [found] = await read_many(self._client, [wanted], timeout_s=self._timeout_s)
        if isinstance(found, HubError):
            raise found
        return found


async def read_many(
    client: Client, wanted: Sequence[ReadQuestion], *, timeout_s: float = 5.0
) -> list[list[Stored] | HubError]:
    """Return the messages of each question, as `StoredReader.read`, or its error.

    All are asked at once, and answered in one subscription: the server remembers the answers of one that
    stays, so it ends with them.

    Args:
        client: a `PatchedClient`.
        wanted: the questions.
        timeout_s: the longest silence of all that are not answered yet.
    """
    reading = cast("PatchedClient", client)
    answers = [_Answer(reading, each.stream) for each in wanted]
    heard = asyncio.Event()
    left = len(answers)

    async def hear(subject: bytes, headers: bytes, body: bytes) -> None:
        nonlocal left
        answer = answer_on.get(subject)
        if answer is None or answer.over:
            return  # nobody's answer
        await answer.take(headers, body)
        left -= answer.over
        if not left:
            heard.set()

    inbox = client.new_inbox()
    answer_on = {f"{inbox}.{number}".encode(): each for number, each in enumerate(answers)}
    async with reading.raw(f"{inbox}.*", hear):
        for number, each in enumerate(wanted):
            request = {"seq": each.seq, "batch": each.messages_max, "max_bytes": _BATCH_BYTES}
            only = {"next_by_subj": each.subject} if each.subject else {}
            api = api_subject(f"DIRECT.GET.{each.stream}")
            body = json.dumps(request | only).encode()
            await client.publish(api, body, reply=f"{inbox}.{number}")
        messages = -1
        while left and messages != (messages := sum(len(each.found) for each in answers)):
            try:
                async with asyncio.timeout(timeout_s):
                    await heard.wait()
            except TimeoutError:
                continue  # it is no silence where any came
    return [each.result(timeout_s) for each in answers]


class _Answer:
    """The answer to one question, as far as it has come."""

    def __init__(self, client: PatchedClient, stream: str) -> None:
        self._client = client
        self._stream = stream
        self._error: HubError | None = None
        self.found: list[Stored] = []
        self.over = False

    def result(self, timeout_s: float) -> list[Stored] | HubError:
        """Return the messages, or the reason to believe none."""
        if not self.over:
            return HubError(f"{self._stream}: no answer in {timeout_s:g} s")
        return self.found if self._error is None else self._error

    async def take(self, headers: bytes, body: bytes) -> None:
        """Take in one message of the server's; no exception, since the connection would read no more."""
        try:
            if not self._take_stored(headers, body):
                await self._take(headers, body)
        except (KeyError, ValueError) as error:
            self.over = True
            self._error = HubError(f"{self._stream}: an answer that cannot be read: {error!r}")

    def _take_stored(self, headers: bytes, body: bytes) -> bool:
        # Headers that came with a stored message stand before those the server adds, and the last of a name
        # wins. So none of the server's can be forged, and only a stored message has a sequence; its "Status"
        # says nothing.
        at = headers.rfind(_STREAM)
        stored = _STORED.match(headers, at) if at >= 0 else None
        if stored is None:
            return False
        subject, seq, stamp = stored.groups()
        text = subject.decode(errors="replace")
        self.found.append(Stored(int(seq), text, body, stamp_ns(stamp.decode())))
        return True

    async def _take(self, headers: bytes, body: bytes) -> None:
        named = await self._client.read_headers(headers)
        if "Nats-Sequence" in named:
            seq, stamp = named["Nats-Sequence"], named["Nats-Time-Stamp"]
            self.found.append(Stored(int(seq), named["Nats-Subject"], body, stamp_ns(stamp)))
            return
        self.over = True
        self._error = self._judge(named)

    def _judge(self, named: dict[str, str]) -> HubError | None:
        match named.get("Status"):
            case status if status == _NOT_FOUND:
                self.found = []
            case status if status == _END_OF_BATCH:
                last = int(named.get("Nats-Last-Sequence", 0))
                if self.found and self.found[-1].seq != last:
                    return HubError(f"{self._stream}: a batch up to {last} came in pieces")
            case status if status == _NOBODY:
                return HubError(f"{self._stream}: no JetStream behind it, or no such stream")
            case status:
                why = named.get("Description", "")
                return HubError(f"{self._stream}: direct get answers {status} {why}")
        return None


def holes(seqs: Iterable[int], lo: int, hi: int) -> Iterator[tuple[int, int]]:
    """Return the missing seqs of `lo` to `hi` in ascending seqs, as ranges."""
    for seq in seqs:
        if seq > lo:
            yield lo, seq - 1
        lo = seq + 1
    if lo <= hi:
        yield lo, hi

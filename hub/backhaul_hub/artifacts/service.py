"""Artifacts for devices: pieces of objects, and uploads, over core NATS.

Who asks is in the subject: the server lets a device publish only its own, and what may show another
is refused (nats/spoofed_reply.py). The answer goes to the subject that the hub knows for this device, never to the
question's reply subject, which no permission is checked on. A device reads operators' artifacts by name, never uploads; it writes its own uploads.

Questions of one device are answered one after another; what it can make the hub do is bounded by what
may wait, by `RateLimiter` for what is looked up, and by the limits of `artifacts/uploads.py` (ADR 10).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from backhaul_codec.protocol import blobs
from backhaul_hub.access.rules import BLOB_QUESTIONS, blob_answer_subject
from backhaul_hub.artifacts.object_store import Chunks, Objects
from backhaul_hub.artifacts.uploads import Upload, UploadError, Uploads
from backhaul_hub.config import ArtifactsSection as Limits
from backhaul_hub.errors import HubError
from backhaul_hub.nats.rate_limit import PENDING_MAX, AnswerPace, RateLimiter
from backhaul_hub.nats.spoofed_reply import is_spoofed
from backhaul_runtime.clock import Clock

# Of one device: twice what an agent ever has under way, for what it asks again after a cut.
WAITING_MAX = 2 * blobs.WINDOW_BYTES_MAX // 1024
WAITING_BYTES_MAX = 2 * blobs.WINDOW_BYTES_MAX
ANSWERS_S_MAX = 400
"""Of one device, in a second: 13 MB of an artifact."""
OPEN_MAX = 64
CACHE_BYTES_MAX = 16 << 20
SWEEP_S = 3600.0
log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Desk:
    """One device: its questions, its reads, its writes."""

    device: str
    waiting: deque[blobs.Question] = field(default_factory=deque)
    waiting_bytes: int = 0
    working: bool = False
    reading: Chunks | None = None
    writing: Upload | None = None
    pace: AnswerPace = field(default_factory=lambda: AnswerPace(ANSWERS_S_MAX))


class BlobService:
    """Answers for as long as it runs.

    Args:
        token_of: a device's token, None for a device that is not known.
        directory: where uploads are kept until they are whole.
        may_ask: counts a device's question, and says whether it may ask still (flood/detector.py).
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        token_of: Callable[[str], str | None],
        directory: Path,
        limits: Limits,
        may_ask: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self.answered = 0
        self.refused = 0
        self._client = client
        self._clock = clock
        self._token_of = token_of
        self._may_ask = may_ask
        self._objects = Objects(client)
        self._uploads = Uploads(directory, self._objects, limits, clock)
        self._chunks = _ChunkCache(self._objects)
        self._opened: OrderedDict[str, Chunks] = OrderedDict()
        self._limiter = RateLimiter()
        self._desks: dict[str, _Desk] = {}
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Serve until cancelled."""
        async with asyncio.TaskGroup() as self._group:
            await self._sweep()

    async def listen(self, client: Client) -> None:
        """Take the questions over a connection in account HUB."""
        await client.subscribe(BLOB_QUESTIONS, cb=self._on_question, pending_msgs_limit=PENDING_MAX)

    async def _sweep(self) -> None:
        """Remove the remains of killed writers in the store, for ever."""
        while True:
            try:
                if swept := await self._objects.sweep(self._clock.now_ns()):
                    log.info("stray_chunks_removed", writers=swept)
            except (HubError, NatsError) as error:
                log.warning("stray_chunks_not_removed", error=str(error))
            await asyncio.sleep(SWEEP_S)

    async def _on_question(self, message: Msg) -> None:
        device = message.subject.partition(".")[2]
        # What is cheap to refuse comes first: there may be a flood of it.
        if (
            self._group is None  # not up yet
            or is_spoofed(message.reply)
            or self._token_of(device) is None
            or not self._may_ask(device)
        ):
            self.refused += 1
            return
        try:
            question = blobs.decode_question(message.data)
        except blobs.NOT_READ:
            self.refused += 1
            return
        desk = self._desks.get(device)
        if desk is None:
            desk = self._desks[device] = _Desk(device)
        size = _weight(question)
        if len(desk.waiting) >= WAITING_MAX or desk.waiting_bytes + size > WAITING_BYTES_MAX:
            self.refused += 1
            return
        desk.waiting.append(question)
        desk.waiting_bytes += size
        if not desk.working:
            desk.working = True
            self._group.create_task(self._work(desk))

    async def _work(self, desk: _Desk) -> None:
        """Answer everything that waits."""
        try:
            while desk.waiting:
                question = desk.waiting.popleft()
                desk.waiting_bytes -= _weight(question)
                token = self._token_of(desk.device)
                if token is None:
                    return
                await asyncio.sleep(desk.pace.wait_s(self._clock.monotonic_s()))
                answer = await self._answer(desk, question)
                self.refused += isinstance(answer, blobs.Refused)
                self.answered += 1
                await self._client.publish(
                    blob_answer_subject(desk.device, token), blobs.encode(answer)
                )
        except NatsError as error:
            log.warning("artifact_not_answered", device=desk.device, error=repr(error))
        finally:
            desk.working = False

    async def _answer(self, desk: _Desk, question: blobs.Question) -> blobs.Answer:
        try:
            match question:
                case blobs.Find():
                    return await self._find(desk, question)
                case blobs.Read():
                    return await self._read(desk, question)
                case blobs.Offer():
                    return await self._offer(desk, question)
                case blobs.Write():
                    return await self._write(desk, question)
        except UploadError as error:
            return blobs.Refused(question.ask, error.code, error.message[:500])
        except (HubError, NatsError, OSError) as error:
            log.warning("artifact_trouble", device=desk.device, error=str(error))
            return blobs.Refused(question.ask, blobs.BUSY, f"the hub is in trouble: {error}"[:500])

    async def _find(self, desk: _Desk, question: blobs.Find) -> blobs.Answer:
        ask, name = question.ask, question.name
        if not blobs.is_name(name):
            return blobs.Refused(ask, blobs.BAD_NAME, f"{name!r} is no name of an artifact")
        if not self._limiter.take(desk.device, self._clock.monotonic_s()):
            return blobs.Refused(ask, blobs.BUSY, "asked too often")
        found = await self._objects.info(name)
        if found is None or len(found.digest) != blobs.DIGEST_BYTES:
            return blobs.Refused(ask, blobs.MISSING, f"the hub has no artifact {name}")
        if question.digest and question.digest != found.digest:
            return blobs.Refused(
                ask, blobs.CHANGED, f"the hub has another version: {found.version}"
            )
        desk.reading = self._opened.get(found.nuid) or await self._objects.open(found)
        self._opened[found.nuid] = desk.reading
        self._opened.move_to_end(found.nuid)
        if len(self._opened) > OPEN_MAX:
            self._opened.popitem(last=False)
        return blobs.Found(ask, found.digest, found.size)

    async def _read(self, desk: _Desk, question: blobs.Read) -> blobs.Answer:
        chunks = desk.reading
        if chunks is None or chunks.artifact.digest != question.digest:
            return blobs.Refused(question.ask, blobs.NOT_OPEN, "find it first")
        data = b""
        while (at := question.offset + len(data)) < chunks.artifact.size:
            number, within = chunks.at(at)
            chunk = await self._chunks.get(chunks, number)
            if chunk is None:
                desk.reading = None
                self._opened.pop(chunks.artifact.nuid, None)
                name = chunks.artifact.name
                return blobs.Refused(
                    question.ask, blobs.CHANGED, f"{name} was removed or replaced meanwhile"
                )
            data += chunk[within : within + question.length - len(data)]
            if len(data) == question.length:
                break
        return blobs.Piece(question.ask, question.offset, data)

    async def _offer(self, desk: _Desk, question: blobs.Offer) -> blobs.Answer:
        if not self._limiter.take(desk.device, self._clock.monotonic_s()):
            return blobs.Refused(question.ask, blobs.BUSY, "asked too often")
        desk.writing = None
        desk.writing = await self._uploads.offer(
            desk.device, question.name, question.digest, question.size
        )
        return blobs.Held(question.ask, desk.writing.held, desk.writing.done)

    async def _write(self, desk: _Desk, question: blobs.Write) -> blobs.Answer:
        upload = desk.writing
        if upload is None or upload.digest != question.digest:
            return blobs.Refused(question.ask, blobs.NOT_OPEN, "offer it first")
        await self._uploads.write(upload, question.offset, question.data)
        return blobs.Held(question.ask, upload.held, upload.done)


class _ChunkCache:
    """The chunks that were read last: pieces are smaller, and a roll-out reads one again and again."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._held: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._bytes = 0

    async def get(self, chunks: Chunks, number: int) -> bytes | None:
        key = chunks.artifact.nuid, number
        if (found := self._held.get(key)) is not None:
            self._held.move_to_end(key)
            return found
        data = await self._objects.chunk(chunks, number)
        if data is not None and key not in self._held:
            self._held[key] = data
            self._bytes += len(data)
            while self._bytes > CACHE_BYTES_MAX:
                self._bytes -= len(self._held.popitem(last=False)[1])
        return data


def _weight(question: blobs.Question) -> int:
    match question:
        case blobs.Read():
            return question.length
        case blobs.Write():
            return len(question.data)
    return 0

"""Moves one file over the link, in either direction: the shell around `transfer_state.TransferState`.

Questions to the hub go out on ``blob.<device>``, the answers come to each asker.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

from nats.aio.client import Client
from nats.aio.msg import Msg

from backhaul_agent.artifacts.jobs import FileState, Job
from backhaul_agent.artifacts.partial_file import Part
from backhaul_agent.artifacts.transfer_state import TransferState, TransferWindow
from backhaul_agent.cancellation import heed_cancel
from backhaul_agent.config import Config
from backhaul_agent.errors import ArtifactError
from backhaul_agent.leaf.link_state import UplinkState
from backhaul_codec.protocol import blobs
from backhaul_runtime.clock import Clock

WAITING_MAX = 2 * blobs.WINDOW_BYTES_MAX // 1024
TRIES = 4
TRY_S = 10.0


class BlobLink:
    """Both ends of the exchange on one connection to the leaf server.

    ``first``: number of the first talk, drawn at random: answers to another run are not ours.
    """

    def __init__(self, config: Config, client: Client, first: int) -> None:
        self._client = client
        self._question = f"blob.{config.device.id}"
        self._answer = f"blobr.{config.device.id}.{config.device.token}"
        self._talks: dict[int, Talk] = {}
        self._next = first

    async def start(self) -> None:
        """Listen to answers for as long as the connection lives."""
        await self._client.subscribe(self._answer, cb=self._take)

    @contextmanager
    def talk(self) -> Iterator[Talk]:
        """Begin to ask about one file."""
        number, self._next = self._next, self._next + 1
        self._talks[number] = talk = Talk(self._client, self._question, number)
        try:
            yield talk
        finally:
            del self._talks[number]

    async def _take(self, message: Msg) -> None:
        try:
            answer = blobs.decode_answer(message.data)
        except blobs.NOT_READ:
            return
        talk = self._talks.get(answer.ask)
        if talk is not None and not talk.answers.full():
            talk.answers.put_nowait(answer)


class Talk:
    """Questions about one file, and the answers to them."""

    def __init__(self, client: Client, subject: str, number: int) -> None:
        self.number = number
        self.answers: asyncio.Queue[blobs.Answer] = asyncio.Queue(WAITING_MAX)
        self._client = client
        self._subject = subject

    async def say(self, question: blobs.Question) -> None:
        """Send a question; its answer comes to `hear`, or not."""
        await self._client.publish(self._subject, blobs.encode(question))
        heed_cancel()

    async def hear(self, wait_s: float) -> blobs.Answer:
        """Return the next answer.

        Raises:
            TimeoutError: there was none in time. ArtifactError: the hub refused.
        """
        async with asyncio.timeout(wait_s):
            answer = await self.answers.get()
        if isinstance(answer, blobs.Refused):
            raise ArtifactError(answer.message, code=answer.code)
        return answer

    async def ask(self, question: blobs.Find | blobs.Offer) -> blobs.Found | blobs.Held:
        """Ask until it is answered; pieces under way from before are passed over.

        Raises:
            ArtifactError: the hub refused, or does not answer.
        """
        for _ in range(TRIES):
            await self.say(question)
            try:
                while True:
                    answer = await self.hear(TRY_S)
                    if isinstance(answer, blobs.Found | blobs.Held):
                        return answer
            except TimeoutError:
                continue
        raise ArtifactError("the hub does not answer about artifacts", code="silent")


LOOK_S = (
    1.0  # how soon it is noticed that the link came up again, or nobody wants the file any more
)
SILENT_MAX = 4  # losses in a row without any answer
STORING_S, STORING_TRIES = 10.0, 30


class CancelledJobError(Exception):
    """Nobody wants the file any more."""


class _End(Protocol):
    """The operation on one file's pieces."""

    async def say(self, offset: int, length: int) -> None:
        """Ask for a piece, or send it."""

    async def take(self, state: TransferState, answer: blobs.Answer) -> None:
        """Take in an answer."""

    async def begin(self) -> blobs.Answer:
        """Have the hub open the file (again)."""


class Transfers:
    """Paces the pieces. ``moved_bytes``: all that has arrived; ``asked_bytes``: repeats too.

    ``require_free``: sees that the disk takes so many bytes more, or raises an ArtifactError.
    """

    def __init__(
        self, clock: Clock, uplink: UplinkState, require_free: Callable[[int], None]
    ) -> None:
        self.moved_bytes = 0
        self.asked_bytes = 0
        self._clock = clock
        self._uplink = uplink
        self._require_free = require_free
        self._down, self._up = TransferWindow(), TransferWindow()

    def link_carries(self, bytes_s: float) -> None:
        """Take note of the link's measured rate."""
        for pace in (self._down, self._up):
            pace.link_carries(bytes_s)

    async def find(self, talk: Talk, job: Job) -> None:
        """Learn which version is meant, once the link is up. Raises: ArtifactError."""
        await self._linked(job)
        found = await talk.ask(blobs.Find(talk.number, job.name, job.digest))
        assert isinstance(found, blobs.Found)
        job.digest, job.size = found.digest, found.size

    async def fetch(self, talk: Talk, job: Job, part: Part) -> None:
        """Bring the missing pieces of a part. Raises: ArtifactError, OSError, CancelledJobError."""
        state = TransferState(job.size, part.held, self._down)
        await self._pass(talk, job, state, _Fetching(talk, job, part, self))

    async def send(self, talk: Talk, job: Job, path: Path) -> None:
        """Send a file; return when the hub has stored it. Raises: as `fetch`."""
        await self._linked(job)
        with contextlib.closing(await asyncio.to_thread(path.open, "rb")) as file:
            sending = _Sending(talk, job, file, self._clock)
            held = await sending.begin()
            assert isinstance(held, blobs.Held)
            state = TransferState(job.size, held.offset, self._up)
            await sending.take(state, held)
            for _ in range(STORING_TRIES):
                await self._pass(talk, job, state, sending)
                if sending.done:
                    return
                job.state = FileState.CHECKING  # and being stored: a large file takes its time
                try:
                    await sending.take(state, await talk.hear(STORING_S))
                except TimeoutError:
                    await sending.take(state, await sending.begin())
        raise ArtifactError("the hub holds all of it, and does not store it", code="silent")

    async def _pass(self, talk: Talk, job: Job, state: TransferState, end: _End) -> None:
        """Move all bytes that are left, over as many links as it takes."""
        ups, silent = self._uplink.ups, 0
        while state.done < state.size:
            if self._uplink.ups != ups or not self._uplink.up:
                await self._linked(job)
                ups = self._uplink.ups
                state.pace.new_link()
                state.lost()
            asked, before = state.asked_bytes, state.done
            while span := state.next(self._clock.monotonic_s()):
                await end.say(*span)
            self.asked_bytes += state.asked_bytes - asked
            try:
                await end.take(state, await talk.hear(LOOK_S))
                silent = 0
            except TimeoutError:
                if state.overdue(self._clock.monotonic_s()):
                    state.lost()
                    silent += 1
            except ArtifactError as error:
                if error.code != blobs.NOT_OPEN:
                    raise
                state.lost()  # the control plane was started again
                await end.take(state, await end.begin())
            self.moved_bytes += max(0, state.done - before)
            job.moved = state.done
            if job.cancelled:
                raise CancelledJobError
            if silent >= SILENT_MAX:
                raise ArtifactError("the hub does not answer about artifacts", code="silent")

    async def _linked(self, job: Job) -> None:
        """Return when the link is up."""
        while not self._uplink.up:
            if job.cancelled:
                raise CancelledJobError
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._uplink.wait_up()


class _Fetching:
    """A file that comes."""

    def __init__(self, talk: Talk, job: Job, part: Part, transfers: Transfers) -> None:
        self._talk, self._job, self._part = talk, job, part
        self._clock, self._require_free = transfers._clock, transfers._require_free

    async def say(self, offset: int, length: int) -> None:
        await self._talk.say(blobs.Read(self._talk.number, self._job.digest, offset, length))

    async def take(self, state: TransferState, answer: blobs.Answer) -> None:
        now_s = self._clock.monotonic_s()
        if isinstance(answer, blobs.Piece) and state.arrived(
            now_s, answer.offset, len(answer.data)
        ):
            await asyncio.to_thread(self._append, answer.data, now_s)

    def _append(self, data: bytes, now_s: float) -> None:
        self._require_free(len(data))
        self._part.append(data, now_s)

    async def begin(self) -> blobs.Answer:
        job, talk = self._job, self._talk
        return await talk.ask(blobs.Find(talk.number, job.name, job.digest))


class _Sending:
    """A file that goes."""

    def __init__(self, talk: Talk, job: Job, file: BinaryIO, clock: Clock) -> None:
        self.done = False
        self._talk, self._job, self._file, self._clock = talk, job, file, clock

    async def say(self, offset: int, length: int) -> None:
        data = await asyncio.to_thread(self._read, offset, length)
        await self._talk.say(blobs.Write(self._talk.number, self._job.digest, offset, data))

    def _read(self, offset: int, length: int) -> bytes:
        self._file.seek(offset)
        return self._file.read(length)

    async def take(self, state: TransferState, answer: blobs.Answer) -> None:
        if isinstance(answer, blobs.Held):
            state.held(self._clock.monotonic_s(), answer.offset)
            self.done |= answer.done

    async def begin(self) -> blobs.Answer:
        job, talk = self._job, self._talk
        return await talk.ask(blobs.Offer(talk.number, job.name, job.digest, job.size))

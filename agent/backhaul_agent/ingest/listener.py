"""Programs' publishes under ``app.`` and their reports of events: received, checked, queued, answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import SlowConsumerError

from backhaul_agent.apps.answering import refusal_of
from backhaul_agent.apps.doors import Connect, Doors, Heard, hear, program_of
from backhaul_agent.apps.floods import TOO_MUCH, Floods, Share, Shares
from backhaul_agent.cancellation import heed_cancel
from backhaul_agent.commit.contents import Content
from backhaul_agent.commit.queues import QueuedPublish, points_in
from backhaul_agent.commit.writer import Writer
from backhaul_agent.config import Config
from backhaul_agent.errors import Code, RefusedError
from backhaul_agent.ingest.parse import Intake
from backhaul_agent.ingest.parse_event import EVENT_PREFIX, EVENT_SUBJECTS, EventIntake
from backhaul_agent.logs import Bursts
from backhaul_agent.stamps import CLOCK_HEADER
from backhaul_runtime.clock import Clock

APP_SUBJECTS = "app.>"
REJECTED_PREFIX = "agent.rejected."  # and the subject of what was refused
NOTES_MAX_MIN = 4096
log = structlog.get_logger("ingest")


class Listener:
    """The shell around `parse.Intake` and `writer.Writer`; lives as long as the daemon.

    ``sieve``: asked before a message is queued. Raises: RefusedError: this one is not to be kept.
    """

    def __init__(
        self,
        intake: Intake,
        writer: Writer,
        config: Config,
        clock: Clock,
        sieve: Callable[[str, Content], None] = lambda _subject, _content: None,
    ) -> None:
        self.received = 0
        self.refusals = Bursts(clock)
        self.floods = Floods()
        self._clock = clock
        self._shares = Shares(config.ingest)
        self._intake = intake
        self._sieve = sieve
        self._events = EventIntake(intake, value_bytes_max=config.ingest.value_bytes_max)
        self._writer = writer
        self._limits = config.ingest
        # Room for an answer to everything that may be pending; notes that nobody asked for may
        # take half of it, so that a flood of them cannot crowd out a "kept".
        self._notes_max = max(NOTES_MAX_MIN, config.ingest.pending_messages_max)
        self._answers: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue(2 * self._notes_max)
        self._kept: dict[int, bytes] = {}
        self._heard: list[Heard] = []
        self.on_kept: list[
            Callable[[Content, int], None]
        ] = []  # told of each kept message, and its size

    async def listen(self, client: Client) -> None:
        """Subscribe on a new connection."""
        self._heard = [
            await hear(
                *(client, subjects, self._on_message),
                pending_msgs_limit=self._limits.pending_messages_max,
                pending_bytes_limit=self._limits.pending_bytes_max,
            )
            for subjects in (APP_SUBJECTS, EVENT_SUBJECTS)
        ]

    def doors(self, connect: Connect) -> Doors:
        """Return the doors beside a new connection; they refuse messages without room."""
        return Doors(connect, self.on_busy, self.floods.note_cut)

    async def stop(self) -> None:
        """Take in the messages that the server has delivered, then no more."""
        heard, self._heard = self._heard, []
        await asyncio.gather(*(each.drain() for each in heard))

    async def send_answers(self, client: Client) -> None:
        """Send answers for as long as the connection lives (the caller cancels)."""
        while True:
            subject, payload = await self._answers.get()
            try:
                await client.publish(subject, payload)
                heed_cancel()
            except NatsError as error:
                log.debug("answer_not_sent", subject=subject, error=str(error))
            finally:
                self._answers.task_done()

    async def answered(self) -> None:
        """Wait until every answer given so far is on its way."""
        await self._answers.join()

    def status(self) -> dict[str, Any]:
        """Return the counters of the status."""
        return {"messages_received": self.received, "refused": dict(self.refusals.counts)}

    def on_overrun(self, error: SlowConsumerError) -> None:
        """Refuse a message that the NATS client has no room for, instead of losing it silently."""
        self._refuse(error.subject, error.reply, 1, TOO_MUCH)

    def on_busy(self, program: str, subject: str, reply: str, points: int = 1) -> None:
        """Refuse a program's messages beyond its room, at as little cost as can be."""
        self.floods.refuse(program, points)
        if self._answers.qsize() >= self._notes_max:
            pass  # the rest of the room is for who does not flood
        elif reply:
            self._send(reply, _BUSY_ANSWER)
        elif points_noted := self.floods.note_due(program, self._clock.monotonic_s()):
            note = {"subject": subject, "points": points_noted, **TOO_MUCH.as_json()}
            self._send(f"{REJECTED_PREFIX}{subject}", msgspec.json.encode(note))
        if count := self.refusals.note(Code.BUSY, points):
            log.warning("refused", code=Code.BUSY, points=count, subject=subject, program=program)

    async def _on_message(self, message: Msg) -> None:
        self.received += 1
        subject, reply, size = message.subject, message.reply, len(message.data)
        program = program_of(message)
        share = self._shares.of(program)
        content = None
        try:
            share.require(size)
            word = message.headers.get(CLOCK_HEADER, "") if message.headers else ""
            parse = self._events.parse if subject.startswith(EVENT_PREFIX) else self._intake.parse
            content = parse(subject, message.data, clock=word)
            self._sieve(subject, content)
            answer = partial(self._answer, subject, reply, share, size)
            self._writer.submit(QueuedPublish(content, size, bool(reply), answer))
            share.take(size)
        except RefusedError as error:
            if program and error.code == Code.BUSY:
                self.on_busy(program, subject, reply, _count(content))
            else:
                self._refuse(subject, reply, _count(content), error)
        except Exception as error:  # noqa: BLE001 - who asked is answered, and others go on
            self._refuse(subject, reply, _count(content), refusal_of(subject, error))

    def _answer(
        self,
        subject: str,
        reply: str,
        share: Share,
        size: int,
        content: Content,
        refusal: RefusedError | None,
    ) -> None:
        share.give(size)
        if refusal is not None:
            self._refuse(subject, reply, points_in(content), refusal)
            return
        for tell in self.on_kept:
            tell(content, size)
        if reply:
            count = points_in(content)
            if count not in self._kept:
                self._kept[count] = msgspec.json.encode({"kept": count})
            self._send(reply, self._kept[count])

    def _refuse(self, subject: str, reply: str, points: int, error: RefusedError) -> None:
        body = error.as_json()
        if reply:
            self._send(reply, msgspec.json.encode(body))
        elif self._answers.qsize() < self._notes_max:
            # Nobody waits for the answer: whoever cares can listen in one place.
            note = {"subject": subject, "points": points, **body}
            self._send(f"{REJECTED_PREFIX}{subject}", msgspec.json.encode(note))
        if count := self.refusals.note(error.code, points):
            log.warning(
                "refused", code=error.code, points=count, subject=subject, error=error.message
            )

    def _send(self, subject: str, payload: bytes) -> None:
        try:
            self._answers.put_nowait((subject, payload))
        except asyncio.QueueFull:
            if count := self.refusals.note("answers_dropped"):
                log.warning("answers_dropped", answers=count)


def _count(content: Content | None) -> int:
    """Return how many points a message holds; one that could not be read counts as one."""
    return 1 if content is None else points_in(content)


_BUSY_ANSWER = msgspec.json.encode(TOO_MUCH.as_json())

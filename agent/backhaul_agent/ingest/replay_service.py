"""Recordings, taken in row by row and each row once: the subjects ``agent.replay.kept`` and ``.put``.

No program with a key of its own may use them: they write points of any node (docs/replay.md).
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from backhaul_agent.apps.answering import refusal_of
from backhaul_agent.apps.doors import ASKED, hear
from backhaul_agent.commit.contents import Content, Frame, Points, Rows
from backhaul_agent.commit.queues import QueuedPublish
from backhaul_agent.errors import Code, RefusedError
from backhaul_agent.ingest.replay_book import Bundle, KeptQuestion, ReplayBook
from backhaul_runtime.clock import Clock

if TYPE_CHECKING:
    from backhaul_agent.commit.writer import Writer
    from backhaul_agent.ingest.parse import Intake
    from backhaul_agent.ledger.ledger import Ledger

KEPT, PUT = "agent.replay.kept", "agent.replay.put"


class ReplayService:
    """The shell around `ReplayBook`; lives as long as the daemon."""

    def __init__(self, ledger: Ledger, intake: Intake, writer: Writer, clock: Clock) -> None:
        self._intake = intake
        self._writer = writer
        self._clock = clock
        self._book = ReplayBook(lambda: ledger.meta)
        self._answers: set[asyncio.Task[None]] = set()

    async def run(self, client: Client) -> None:
        """Serve a new connection."""
        await hear(client, KEPT, partial(self._on_message, client, self._on_question), **ASKED)
        await hear(client, PUT, partial(self._on_message, client, self._on_bundle), **ASKED)

    async def _on_message(self, client: Client, handle: Any, message: Msg) -> None:
        def answer(body: dict[str, Any]) -> None:
            sending = asyncio.get_running_loop().create_task(_send(client, message.reply, body))
            self._answers.add(sending)
            sending.add_done_callback(self._answers.discard)

        try:
            handle(message.data, answer)
        except Exception as error:  # noqa: BLE001 - who asked is answered, and others go on
            answer(refusal_of(message.subject, error).as_json())

    def _on_question(self, data: bytes, answer: Any) -> None:
        found = self._book.kept(_read(data, KeptQuestion).source)
        answer({"kept": None if found is None else msgspec.to_builtins(found)})

    def _on_bundle(self, data: bytes, answer: Any) -> None:
        """Queue a bundle for the next commit, all of it or nothing."""
        bundle = _read(data, Bundle)
        parts: list[Points | Frame] = []
        refused: list[tuple[int, str, str]] = []
        for index, part in enumerate(bundle.parts):
            try:
                parts.append(self._part(*part))
            except RefusedError as refusal:
                refused.append((index, refusal.code, refusal.message))
        if refused:
            answer({"kept": 0, "refused": refused})
            return
        points = sum(
            len(part.points) if isinstance(part, Points) else part.points for part in parts
        )
        note = self._book.begin(bundle, points, self._clock.now_ns())
        if note is None:
            answer({"kept": points})
            return

        def written(_: Content, refusal: RefusedError | None) -> None:
            self._book.end(bundle.source)
            answer({"kept": points} if refusal is None else refusal.as_json())

        try:
            rows = Rows(parts, points, note.noted, note.expected)
            self._writer.submit(QueuedPublish(rows, len(data), waited_for=True, answer=written))
        except Exception:
            self._book.end(bundle.source)
            raise

    def _part(self, subject: str, payload: bytes, clock: str) -> Points | Frame:
        if not subject.startswith("app."):
            raise RefusedError(Code.BAD_SUBJECT, f"{subject!r} does not begin with app.")
        part = self._intake.parse(subject, payload, clock=clock)
        if isinstance(part, Points) and part.live:
            raise RefusedError(Code.BAD_FIELD, "a recording goes by the bulk lane")
        return part


def _read(data: bytes, kind: Any) -> Any:
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedError(Code.BAD_FIELD, f"no {kind.__name__.lower()}: {error}") from None


async def _send(client: Client, subject: str, body: dict[str, Any]) -> None:
    try:
        if subject:
            await client.publish(subject, msgspec.json.encode(body))
    except NatsError:
        return  # the connection is gone; the replay asks again

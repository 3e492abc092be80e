"""History for local programs: the subjects ``agent.history`` and ``agent.history.<node>``.

A request is answered with pieces on its reply subject, oldest first, and then a message with
``"end": true``. One request is answered at a time, between everything else the agent does; a few
wait, more are refused.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import msgspec
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from backhaul_agent.apps.answering import refusal_of
from backhaul_agent.apps.doors import ASKED, hear, program_of
from backhaul_agent.cancellation import heed_cancel
from backhaul_agent.errors import Code, RefusedError
from backhaul_agent.history.ledger_source import FoundPoints, LedgerHistory
from backhaul_agent.history.merge import Merge, chunks, read_request
from backhaul_agent.history.stream_source import OutHistory
from backhaul_agent.sync.requests import require_named

if TYPE_CHECKING:
    from backhaul_agent.ledger.ledger import Ledger

HISTORY_SUBJECT = "agent.history"
WAITING_MAX = 8
WAITING_OF_ONE_MAX = 4  # of one program, where the leaf server tells programs apart
ANSWER_S_MAX = 60.0
ANSWER_BYTES_MAX = 32 << 20
FLUSH_BYTES = 1 << 20
log = structlog.get_logger("history")


class HistoryService:
    """Answers questions for history; lives as long as the daemon."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def run(self, client: Client) -> None:
        """Serve for as long as the connection lives (the caller cancels)."""
        waiting: asyncio.Queue[Msg] = asyncio.Queue(WAITING_MAX)
        of_each: Counter[str] = Counter()

        async def on_request(message: Msg) -> None:
            if not message.reply:
                return
            program = program_of(message)
            if waiting.full() or (program and of_each[program] >= WAITING_OF_ONE_MAX):
                refusal = RefusedError(Code.BUSY, "others ask for history: try again shortly")
                await _send(client, message.reply, _refused(refusal))
                return
            waiting.put_nowait(message)
            of_each[program] += 1

        for subject in (HISTORY_SUBJECT, f"{HISTORY_SUBJECT}.*"):
            await hear(client, subject, on_request, **ASKED)
        while True:
            message = await waiting.get()
            of_each[program_of(message)] -= 1
            try:
                async with asyncio.timeout(ANSWER_S_MAX):
                    end = await self._answer(client, message)
            except TimeoutError:
                text = f"not done in {ANSWER_S_MAX:g} s: ask for a shorter time"
                end = _refused(RefusedError(Code.BUSY, text))
            except NatsError:
                raise  # the connection is gone, and whoever asked with it
            except Exception as error:  # noqa: BLE001 - who asked is answered, and others go on
                end = _refused(refusal_of(message.subject, error))
            try:
                await _send(client, message.reply, end)
            except NatsError as error:
                log.debug("history_not_sent", error=str(error))

    async def _answer(self, client: Client, message: Msg) -> dict[str, Any]:
        """Send the pieces; return the end."""
        question = read_request(message.data)
        require_named(message.subject, HISTORY_SUBJECT, question.node)
        out = OutHistory(client, self._ledger, question)
        ledger = LedgerHistory(self._ledger, question)
        merge = Merge(question.limit)
        sent_bytes = unflushed = 0
        async with aclosing(_both(out, ledger)) as found:
            async for run, horizon_ns in found:
                merge.add(run)
                taken = merge.take(horizon_ns)
                for piece in chunks(taken):
                    size = await _send(client, message.reply, piece)
                    sent_bytes, unflushed = sent_bytes + size, unflushed + size
                if unflushed > FLUSH_BYTES:
                    unflushed = 0
                    await client.flush()
                    heed_cancel()
                if sent_bytes > ANSWER_BYTES_MAX:
                    merge.stop(horizon_ns)
                if merge.done:
                    break
        return {
            "end": True,
            "points": merge.points,
            "next": merge.next_ns,
            "from_out": out.points,
            "unreadable": ledger.unreadable,
        }


async def _both(out: OutHistory, ledger: LedgerHistory) -> AsyncGenerator[FoundPoints, None]:
    """Yield points that only OUT has, then those of the ledger, oldest first."""
    async with aclosing(out.runs()) as runs:
        async for found in runs:
            yield found
    async with aclosing(ledger.runs()) as runs:
        async for found in runs:
            yield found


def _refused(error: RefusedError) -> dict[str, Any]:
    return {"end": True, **error.as_json()}


async def _send(client: Client, subject: str, body: dict[str, Any]) -> int:
    payload = msgspec.json.encode(body)
    await client.publish(subject, payload)
    heed_cancel()
    return len(payload)

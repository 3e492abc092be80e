"""`agent.commands`, `agent.events` and `agent.waiting`, for the agent's own login alone (docs/apps.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from backhaul_agent.apps.doors import ASKED
from backhaul_agent.apps.program_json import read_program_json
from backhaul_agent.errors import Code, LedgerStorageError, RefusedError
from backhaul_agent.status.recent import Recent
from backhaul_agent.unforeseen import unforeseen
from backhaul_codec.strict.json import Reader

COMMANDS, EVENTS, WAITING = "agent.commands", "agent.events", "agent.waiting"
LIMIT_MAX = 200


class RecentRequest(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The payload; nothing is the same as ``{}``."""

    limit: Annotated[int, Meta(ge=1, le=LIMIT_MAX)] = 100


_read = Reader(RecentRequest).read


class RecentService:
    """Answers for as long as the daemon lives; one question of all at a time, since each reads many rows."""

    def __init__(self, recent: Recent) -> None:
        self._recent = recent
        self._one_by_one = asyncio.Lock()

    async def run(self, client: Client) -> None:
        """Subscribe on a new connection. Raises: NatsError: it is gone."""
        for subject in (COMMANDS, EVENTS, WAITING):
            await client.subscribe(subject, cb=self._answering(client, subject), **ASKED)

    async def ask(self, subject: str, payload: bytes) -> dict[str, Any]:
        """Return an answer, a refusal among them, as JSON's values."""
        try:
            limit = _limit(payload)
            async with self._one_by_one:
                if subject == COMMANDS:
                    return await self._recent.commands(limit)
                if subject == EVENTS:
                    return await self._recent.events(limit)
                return await self._recent.waiting()
        except RefusedError as error:
            refusal = error
        except LedgerStorageError as error:
            refusal = RefusedError(Code.STORAGE, str(error))
        except Exception as error:  # noqa: BLE001 - who asked is answered, and others go on
            refusal = unforeseen(subject, error)
        return {"error": {"code": refusal.code, "message": refusal.message}}

    def _answering(self, client: Client, subject: str) -> Callable[[Msg], Awaitable[None]]:
        async def on_message(message: Msg) -> None:
            answer = msgspec.json.encode(await self.ask(subject, message.data))
            if len(answer) > client.max_payload:
                text = f"the answer has {len(answer)} bytes, {client.max_payload} fit: ask for less"
                answer = msgspec.json.encode({"error": {"code": Code.TOO_LARGE, "message": text}})
            if message.reply:
                with suppress(NatsError):
                    await message.respond(answer)

        return on_message


def _limit(payload: bytes) -> int:
    return (read_program_json(_read, payload) if payload.strip() else RecentRequest()).limit

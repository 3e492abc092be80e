"""`agent.commands`, `agent.events` and `agent.waiting`, for the agent's own login alone (docs/apps.md)."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from nats.aio.client import Client
from nats.aio.msg import Msg

from backhaul_agent.apps.answering import answering
from backhaul_agent.apps.doors import ASKED
from backhaul_agent.apps.program_json import read_program_json
from backhaul_agent.status.recent import Recent
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
            await client.subscribe(subject, cb=answering(self._answer), **ASKED)

    async def ask(self, subject: str, payload: bytes) -> dict[str, Any]:
        """Return the answer as JSON's values. Raises: RefusedError, LedgerStorageError."""
        limit = _limit(payload)
        async with self._one_by_one:
            if subject == COMMANDS:
                return await self._recent.commands(limit)
            if subject == EVENTS:
                return await self._recent.events(limit)
            return await self._recent.waiting()

    async def _answer(self, message: Msg) -> dict[str, Any]:
        return await self.ask(message.subject, message.data)


def _limit(payload: bytes) -> int:
    return (read_program_json(_read, payload) if payload.strip() else RecentRequest()).limit

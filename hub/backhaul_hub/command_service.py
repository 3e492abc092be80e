"""Answering what operators and programs ask about commands: `hub.commands`, in account HUB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from . import command_rows
from .sync_service import answering

if TYPE_CHECKING:
    from nats.aio.client import Client

    from .registry import Registry

SERVICE = "hub.commands"


class Question(msgspec.Struct, forbid_unknown_fields=True):
    """Which commands: of a device, one by its id, only those that are not over."""

    device: str | None = None
    id: str | None = None
    unfinished: bool = False
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


async def serve_commands(client: Client, registry: Registry) -> None:
    """Answer for as long as the connection lives, from what is stored."""

    async def answer(question: Question) -> dict[str, Any]:
        found = await command_rows.newest(
            registry,
            question.device,
            question.id,
            unfinished=question.unfinished,
            limit=question.limit,
        )
        return {"commands": [command.told() for command in found]}

    await client.subscribe(SERVICE, cb=answering(client, Question, answer))

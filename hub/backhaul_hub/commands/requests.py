"""Answering what operators and programs ask about commands: `hub.commands`, in account HUB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backhaul_hub import questions
from backhaul_hub.commands import rows as command_rows
from backhaul_hub.nats.replies import answering

if TYPE_CHECKING:
    from nats.aio.client import Client

    from backhaul_hub.db.store import Registry

SERVICE = "hub.commands"


async def serve_commands(client: Client, registry: Registry) -> None:
    """Answer for as long as the connection lives, from what is stored."""

    async def answer(question: questions.Commands) -> dict[str, Any]:
        found = await command_rows.newest(registry, question)
        return {"commands": [command.told() for command in found]}

    await client.subscribe(SERVICE, cb=answering(client, questions.Commands, answer))

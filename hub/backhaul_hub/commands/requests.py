"""The answer to who asks about commands: operators on `hub.commands`, and people."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from backhaul_hub import questions
from backhaul_hub.commands import rows as command_rows
from backhaul_hub.db.store import Registry


async def listed(
    registry: Registry, question: questions.CommandsQuestion, devices: Collection[str] | None = None
) -> dict[str, Any]:
    """Return the newest commands as they are stored, of these devices or (None) of all."""
    found = await command_rows.newest(registry, question, devices)
    return {"commands": [command.told() for command in found]}

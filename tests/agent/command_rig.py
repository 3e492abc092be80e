"""A connection and rows for tests of operators' commands."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from nats.errors import ConnectionClosedError

from backhaul_agent.ledger.command_rows import CommandRow, RunState
from tests.support.agent_clock import FakeClock

NOW = FakeClock().wall_ns


S = 1_000_000_000


def row(name: str = "plain", state: RunState = RunState.WAITING, **fields: Any) -> CommandRow:
    made = CommandRow(1, "c1", name, b"null", NOW, NOW + 300 * S, state, 0)
    return made._replace(**fields)


class Connection:
    """A connection to the leaf server that may be lost, which the agent has not noticed yet."""

    def __init__(self, *, lost: bool, answer: bytes = b"7") -> None:
        self.looked_at = asyncio.Event()
        self._lost = lost
        self._answer = answer

    @property
    def is_closed(self) -> bool:
        self.looked_at.set()
        return self._lost

    async def request(self, *_: object, **_options: object) -> Any:
        if self.is_closed:
            raise ConnectionClosedError
        return SimpleNamespace(data=self._answer)

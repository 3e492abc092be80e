"""A clock service on a wire in memory."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from backhaul_hub.links.clock_service import ClockService

TOKENS = {"VID-001": "tok1", "VID-002": "tok2"}


class HubClock:
    def __init__(self) -> None:
        self.ns, self.s = 10**18, 0.0

    def now_ns(self) -> int:
        self.ns += 7
        return self.ns

    def monotonic_s(self) -> float:
        return self.s


class Wire:
    """Stands for the connection: remembers what is published, delivers what is asked."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.ask: Any = None

    async def subscribe(self, subject: str, cb: Any, pending_msgs_limit: int) -> None:
        assert subject == "clk.*"
        self.ask = cb

    async def publish(self, subject: str, payload: bytes) -> None:
        self.sent.append((subject, json.loads(payload)))

    async def question(self, device: str, body: bytes, reply: str = "") -> None:
        await self.ask(SimpleNamespace(subject=f"clk.{device}", data=body, reply=reply))


async def serving() -> tuple[Wire, HubClock, ClockService]:
    wire, clock = Wire(), HubClock()
    service = ClockService(wire, clock, TOKENS.get)  # type: ignore[arg-type]
    await service.listen(wire)  # type: ignore[arg-type]
    return wire, clock, service

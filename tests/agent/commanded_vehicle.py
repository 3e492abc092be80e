"""A vehicle's ledger with the part of the agent that carries out commands, and its stream IN."""

from __future__ import annotations

import asyncio
import contextlib
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.commands.service import SINCE, CommandService
from backhaul_agent.commit.writer import Writer
from backhaul_agent.config import ClockConfig, CommandConfig, CommandsConfig, Config, DeviceConfig
from backhaul_agent.hub_time.hub_clock import HubClock
from backhaul_agent.ledger.rows import Inbound, Inward
from backhaul_codec import Opaque, decode
from tests.agent.command_rig import S
from tests.agent.ledgers import open_ledger
from tests.support.agent_clock import FakeClock
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from backhaul_agent.ledger.ledger import Ledger


class Vehicle:
    """A command service on a real ledger, whose hub we are."""

    def __init__(self, ledger: Ledger, clock: FakeClock, *handlers: CommandConfig, trust: Any):
        self.client: Any = None
        config = Config(
            device=DeviceConfig(id="VID-001", token="t"),
            command=handlers,
            commands=CommandsConfig(rows_max=10),
            clock=ClockConfig(trust_system=trust),
        )
        self.ledger = ledger
        self.clock = HubClock(clock, config.clock)
        self.writer = Writer(ledger, config, self.clock, on_commit=lambda: None)
        self.service = CommandService(config, ledger, self.writer, self.clock, lambda: self.client)
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self.tasks = [asyncio.create_task(self.writer.run())]
        self.tasks.append(asyncio.create_task(self.service.run()))
        if self.clock.latest_ns() is not None:
            await until(lambda: SINCE in self.ledger.meta)

    async def stop(self) -> None:
        """Cut off what runs, as the end of the agent does."""
        for task in reversed(self.tasks):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def send(self, id_: str, name: str, *, sent_s: int = 1, deadline_s: int = 300) -> None:
        now_ns = self.clock.now_ns()
        body = {
            "name": name,
            "sent_ns": now_ns + sent_s * S,
            "deadline_ns": now_ns + deadline_s * S,
        }
        changes = Inward()
        data = json.dumps(body | {"params": [id_]}).encode()
        self.service.on_message(Inbound(["c", id_], data, fresh=True), changes)
        await self.writer.apply(changes)
        self.service.wake()

    async def said(self, id_: str) -> list[dict[str, Any]]:
        """Return all that was said of a command, in order."""
        said = []
        for each in await self.ledger.read("live", 1, 1000):
            if each.subject == f"r.{id_}":
                value = decode(each.body, key=id_).points[0].value
                assert isinstance(value, Opaque)
                said.append(json.loads(value.data))
        return said

    async def end(self, id_: str, times: int = 1) -> dict[str, Any]:
        """Wait until a command has ended, and return what was said last."""
        for _ in range(12_000):
            said = await self.said(id_)
            if sum(each["state"] != "accepted" for each in said) >= times:
                return said[-1]
            await asyncio.sleep(0.01)
        pytest.fail(f"{id_} never ended: {await self.said(id_)}")


@asynccontextmanager
async def vehicle(
    path: Path, *handlers: CommandConfig, clock: FakeClock | None = None, trust: str = "yes"
) -> AsyncIterator[Vehicle]:
    ledger = await open_ledger(path / "ledger.db")
    made = Vehicle(ledger, clock or FakeClock(), *handlers, trust=trust)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()
        await ledger.close()


def shell(name: str, script: str, **fields: Any) -> CommandConfig:
    return CommandConfig(name, run=("/bin/sh", "-c", script), **fields)


class InStream:
    """Stands for the leaf's stream IN, of which it matters here only what stands in it."""

    def __init__(self) -> None:
        self.held: list[str] = []
        self.looks = 0

    async def subjects(self, _: str, __: str) -> list[str]:
        self.looks += 1
        return list(self.held)

    async def purge(self, _: str, **what: Any) -> None:
        self.held.remove(what["filter"])

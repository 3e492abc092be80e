"""A daemon in this process on a real leaf server, and what tests do with it."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from itertools import chain, count
from typing import TYPE_CHECKING, Any

import nats

from backhaul_agent.config import parse
from backhaul_agent.daemon import Daemon
from backhaul_runtime.clock import SystemClock
from backhaul_runtime.systemd_notify import Notifier
from tests.agent.ledgers import FailingDisk
from tests.support.agent_process import running
from tests.support.rig import patient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from nats.aio.client import Client

    from tests.support.nats_server import NatsServer


SETTINGS = """
[frame]
age_s_max = 0.05
points_max = 20
bytes_max = 4096
[ingest]
value_bytes_max = 1000
stage_s_max = 0.02
"""


class Recorder(Notifier):
    """Remembers what systemd would have been told."""

    def __init__(self) -> None:
        super().__init__({})
        self.messages: list[str] = []

    def send(self, message: str) -> None:
        self.messages.append(message)


class Bench:
    """A daemon in this process, a connection beside it, and its disk in our hands."""

    def __init__(self, daemon: Daemon, client: Client, disk: FailingDisk, told: Recorder) -> None:
        self.daemon = daemon
        self.client = client
        self.disk = disk
        self.told = told

    async def ask(self, subject: str, payload: bytes | str) -> dict[str, Any]:
        data = payload.encode() if isinstance(payload, str) else payload
        message = await self.client.request(subject, data, timeout=30)
        answer: dict[str, Any] = json.loads(message.data)
        return answer

    async def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        async with asyncio.timeout(60):
            while True:
                try:
                    message = await self.client.request("agent.status", b"", timeout=2)
                except (nats.errors.NoRespondersError, nats.errors.TimeoutError):
                    pass  # nobody is there, or who heard it has just ended
                else:
                    status: dict[str, Any] = json.loads(message.data)
                    if wanted(status):
                        return status
                await asyncio.sleep(0.02)

    async def drained(self) -> dict[str, Any]:
        return await self.until(
            lambda status: (
                not status["ledger"]["staged_points"]
                and all(
                    running(lane) and lane["appended"] == lane["last_seq"]
                    for lane in status["lanes"].values()
                )
            )
        )


@asynccontextmanager
async def bench(
    path: Path,
    server: NatsServer,
    *,
    extra: str = "",
    down: str = "",
    limits: str = "",
    ledger: str = "",
    drained: bool = True,
    disk: FailingDisk | None = None,
) -> AsyncIterator[Bench]:
    text = f'[device]\nid = "VID-001"\ntoken = "tok1"\n{down}[nats]\nurl = "{server.url}"\n'
    ledger = '[ledger]\npath = "ledger.db"\n' + ledger
    config = parse(text + SETTINGS + limits + "\n" + extra + ledger, path / "agent.toml")
    disk, told = disk or FailingDisk(), Recorder()
    daemon = Daemon(
        config,
        clock=SystemClock(),
        random_u32=chain([42], count(42)).__next__,
        notifier=told,
        opener=disk,
    )
    task = asyncio.create_task(daemon.run())
    client = await patient.connect(server.url)
    made = Bench(daemon, client, disk, told)
    try:
        if drained:
            await made.drained()
        yield made
    finally:
        daemon.stop()
        await asyncio.wait_for(task, 60)
        await made.client.close()

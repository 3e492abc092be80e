"""A hub as `backhaul-hub simulate --make-hub` makes it: accounts, logins and streams as any hub has them,
and a login that may put messages into UP, as sources would."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

from backhaul_hub.cli._ask import hub_client
from backhaul_hub.config import load
from backhaul_hub.nats.connection import connect
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.simulated.target import (
    INBOX,
    make_streams,
    make_test_hub,
    publish_subject,
    simulator_login,
)
from backhaul_runtime.clock import SystemClock
from backhaul_spark.nats.direct_get import read_range
from backhaul_spark.nats.endpoint import endpoint_from
from tests.support.hub_layout import local_layout
from tests.support.nats_server import ConfiguredServer
from tests.support.rig.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

ENV = "test"


class SimulatedHub:
    """The hub's directory, and what is put into its streams; there is no control plane."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.config = load(directory)
        self.url = f"nats://127.0.0.1:{port}"

    def put(self, bodies: Mapping[str, bytes]) -> None:
        """Store in UP a frame of each device's battery."""

        async def publish() -> None:
            login = simulator_login(self.directory, self.config)
            client = await connect(self.config.nats.url, login, inbox_prefix=INBOX)
            api = JetStreamApi(client)
            for device, body in bodies.items():
                await api.publish(publish_subject("UP_00", device, "f.battery"), body)
            await client.close()

        asyncio.run(publish())

    def put_down(self, subject: str, body: bytes) -> None:
        """Store a message in DOWN, as the control plane would."""

        async def publish() -> None:
            async with hub_client(self.directory) as control:
                await JetStreamApi(control).publish(subject, body)

        asyncio.run(publish())

    def held(self, stream: str) -> list[tuple[str, bytes]]:
        """Return subjects and bodies of what a stream of account HUB holds."""
        credentials = str(self.directory / "creds" / "control.creds")
        options = {"servers": self.url, "credentials": credentials, "api": "$JS.API"}
        parts = read_range(endpoint_from(options), stream, 1, 1_000_000)
        return [pair for part in parts for pair in zip(part.subjects, part.bodies, strict=True)]


@contextmanager
def simulated_hub(directory: Path) -> Iterator[SimulatedHub]:
    """Make a hub, and run its server."""
    port = free_port()
    layout = local_layout(port, free_port(), up_gib=1, env=ENV)
    make_test_hub(directory, layout, SystemClock())
    server = ConfiguredServer(directory, directory / "hub.conf", port)
    server.start()
    try:
        hub = SimulatedHub(directory, port)
        asyncio.run(_made(directory))
        yield hub
    finally:
        server.stop()


async def _made(directory: Path) -> None:
    async with hub_client(directory) as control:
        await make_streams(JetStreamApi(control), load(directory))

"""Hubs to take backups of."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from backhaul_hub.config import load
from backhaul_hub.db.devices import add_device
from backhaul_hub.db.store import Registry
from backhaul_hub.device import Device
from backhaul_hub.lane_records.lane_rows import ReadPosition, store_read
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.streams.streams import declared_streams, reconcile
from backhaul_hub.uplink.stream_digest import Block, digest_blocks, ranges
from tests.support.rig import patient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.aio.client import Client

    from backhaul_hub.config import HubConfig
    from tests.support.nats_server import NatsServer


SECOND_NS = 10**9


class FixedClock:
    """Stands still at the time of a backup."""

    def now_ns(self) -> int:
        return 1_800_000_000 * SECOND_NS

    def monotonic_s(self) -> float:
        return 0.0


@pytest.fixture
async def client(nats_server: NatsServer) -> AsyncIterator[Client]:
    connection = await patient.connect(nats_server.url)
    yield connection
    await connection.close()


async def streams_at(client: Client, directory: Path) -> HubConfig:
    """Make the streams and hub.db of a hub."""
    config = load(directory)
    api = JetStreamApi(client)
    for declared in declared_streams(config):
        name = declared["name"]
        # Not sourced only, so that the test can write; UP's own subject takes nothing else.
        extra = {"subjects": ["up.>"]} if name == "UP_00" else {}
        await reconcile(api, declared | {"max_bytes": 64 << 20} | extra)
    async with await Registry.open(directory / "hub.db") as registry:
        await add_device(registry, Device("VID-001", "token", "hash", 1))
        created = (await api.request("STREAM.INFO.UP_00"))["created"]
        await store_read(registry, "UP_00", ReadPosition(created, 5, 0, 1, 1), {})
    return config


async def write(client: Client, subject: str, count: int) -> None:
    """Store messages of 1 kB that cannot be compressed."""
    for number in range(1, count + 1):
        # The stream answers once it has it, and took the others before. It drops what comes when
        # 10,000 wait.
        if number % 1000 and number < count:
            await client.publish(subject, os.urandom(1000))
        else:
            await client.request(subject, os.urandom(1000), timeout=30)


async def content(client: Client, stream: str, last: int) -> list[Block]:
    return await digest_blocks(client, stream, ranges(1, last))

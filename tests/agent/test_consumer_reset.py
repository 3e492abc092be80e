"""What the durable of an OUT stream answers when the hub's source resets it, on a real server.

The source takes "delivered" in that answer for what it has got already. nats-server 2.15.1 takes it
from a file where it has nothing else in memory, which is so at sequence 0: see ADR 1.
"""

from __future__ import annotations

import asyncio
import json
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.config import Config, DeviceConfig
from backhaul_agent.leaf.connection import requester
from backhaul_agent.leaf.jetstream import JetStream
from backhaul_agent.leaf.streams import out_consumer_config, out_stream_config
from tests.support.nats_server import DOMAIN, NatsServer
from tests.support.rig import patient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from nats.aio.client import Client

pytestmark = pytest.mark.nats
STREAMS = 25
ROUNDS = 20
MESSAGES = 100
FILE_WRITE_S = 0.1  # the server writes a consumer's file at once, and again this much later


@pytest.fixture
def slow_disk_server(tmp_path: Path) -> Iterator[NatsServer]:
    """A leaf that syncs what it writes: the file of a consumer is under way for longer."""
    store = f'store_dir: "{tmp_path / "store"}", domain: {DOMAIN}'
    server = NatsServer(tmp_path / "leaf", extra=f"jetstream: {{ {store}, sync_interval: always }}")
    server.start()
    try:
        yield server
    finally:
        server.stop()


async def position_after_reset(client: Client, number: int, random: Random) -> tuple[int, int]:
    """Let all be delivered to somebody who takes nothing; return (delivered, ack floor) then."""
    arrived = asyncio.Event()

    async def on_message(_: object) -> None:
        arrived.set()

    subscription = await client.subscribe(f"dlv.{number}", cb=on_message)
    await asyncio.wait_for(arrived.wait(), 60)
    # No condition to wait for: the server tells nobody when it writes.
    await asyncio.sleep(FILE_WRITE_S + random.uniform(-0.004, 0.004))
    await subscription.unsubscribe()
    answer = await client.request(f"$JS.API.CONSUMER.RESET.O{number}.tok1", b"", timeout=30)
    said: dict[str, Any] = json.loads(answer.data)
    return said["delivered"]["stream_seq"], said["ack_floor"]["stream_seq"]


async def test_a_reset_before_the_first_ack_never_says_that_anything_was_delivered(
    slow_disk_server: NatsServer,
) -> None:
    config = Config(device=DeviceConfig(id="VID-001", token="tok1"))
    client = await patient.connect(slow_disk_server.url)
    jetstream = JetStream(requester(client))
    for number in range(STREAMS):
        name = f"O{number}"
        stream = {"name": name, "subjects": [f"f.{number}"]}
        await jetstream.ensure_stream(out_stream_config(config, "bulk") | stream)
        consumer = out_consumer_config(config, "bulk") | {"deliver_subject": f"dlv.{number}"}
        await jetstream.ensure_consumer(name, consumer)
        for _ in range(MESSAGES):
            await client.publish(f"f.{number}", b"x" * 100)
    random = Random(1)
    answers = [
        answer
        for _ in range(ROUNDS)
        for answer in await asyncio.gather(
            *(position_after_reset(client, number, random) for number in range(STREAMS))
        )
    ]
    await client.close()
    assert {answer for answer in answers if answer[0] > answer[1]} == set()

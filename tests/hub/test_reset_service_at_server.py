"""With real servers: resets passed on: an answer that would have a leaf pass over messages is never told."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_hub.links.down_consumers import durable_source
from backhaul_hub.links.reset_service import says_too_much
from tests.support.rig import patient

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from tests.support.nats_server import NatsServer

pytestmark = pytest.mark.nats

DEADLINE_S = 120.0
DURABLE = "VID-001-" + "0" * 24


async def ask(hub: Client, about: str, body: bytes = b"") -> dict[str, Any]:
    """Ask the server about the durable."""
    reply = await hub.request(f"$JS.API.CONSUMER.{about}.DOWN_00.{DURABLE}", body)
    answer: dict[str, Any] = json.loads(reply.data)
    assert "error" not in answer, answer
    return answer


async def deliver(hub: Client, listener: Client, *names: str) -> None:
    """Write into DOWN, and have the durable deliver it to somebody who acknowledges nothing."""
    await hub.jetstream().add_stream(name="DOWN_00", subjects=["in.>"], max_msgs_per_subject=1)
    declared = durable_source(name=DURABLE, deliver_subject="dn.x")
    create = {"stream_name": "DOWN_00", "action": "", "config": declared}
    await ask(hub, "CREATE", json.dumps(create).encode())
    arrived: asyncio.Queue[Msg] = asyncio.Queue()

    async def take(message: Msg) -> None:
        if message.data:  # else it is a heartbeat
            arrived.put_nowait(message)

    await listener.subscribe("dn.x", cb=take)
    await listener.flush()
    async with asyncio.timeout(DEADLINE_S):
        for name in names:
            await hub.publish(f"in.{name}", b"x")
            # One that gave way before it was delivered never would be.
            await arrived.get()


async def leave(hub: Client, listener: Client) -> None:
    """Listen no more, and wait until the server knows: until then it delivers while it resets."""
    await listener.close()
    async with asyncio.timeout(DEADLINE_S):
        while (await ask(hub, "INFO")).get("push_bound"):
            pass


async def test_what_a_real_server_answers_is_understood(nats_server: NatsServer) -> None:
    hub = await patient.connect(nats_server.url)
    listener = await patient.connect(nats_server.url)
    await deliver(hub, listener, *map(str, range(50)))
    info = await ask(hub, "INFO")
    assert says_too_much(json.dumps(info | {"reset_seq": 1}).encode())
    await leave(hub, listener)
    answer = await ask(hub, "RESET")
    assert answer["reset_seq"] == 1
    assert not says_too_much(json.dumps(answer).encode())
    await hub.close()


async def test_a_right_answer_may_pass_over_a_message_all_the_same(nats_server: NatsServer) -> None:
    """Where a message of DOWN gives way to a newer one, all before it counts as acknowledged.

    No answer shows that (ADR 1, case 3): it is why a device is told again after a reset.
    """
    hub = await patient.connect(nats_server.url)
    listener = await patient.connect(nats_server.url)
    await deliver(hub, listener, "watermark", "head", "watermark", "watermark")
    async with asyncio.timeout(DEADLINE_S):
        # The server counts what gave way a moment after it did.
        while (await ask(hub, "INFO"))["ack_floor"]["stream_seq"] != 3:
            pass
    await leave(hub, listener)
    answer = await ask(hub, "RESET")
    assert answer["reset_seq"] == 4  # the head is 2, and still stands in DOWN
    assert not says_too_much(json.dumps(answer).encode())
    await hub.close()

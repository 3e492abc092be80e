"""With real servers: why each program has an account of its own, and a vehicle without programs."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.nats_server import NatsServer
from tests.support.rig import patient

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.nats


async def test_in_one_account_an_answer_would_start_a_command(tmp_path: Path) -> None:
    """Why each program has an account of its own."""
    everybody = """accounts {
      VEH { users: [{ user: agent, password: a }], exports: [{ service: "app.>" }] }
      APPS {
        users: [
          { user: gps, password: a, permissions { subscribe: ["cmd.unlock"] } }
          { user: other, password: a, permissions { publish: ["app.other.>"] } }
        ]
        imports: [{ service: { account: VEH, subject: "app.>" } }]
      }
    }"""
    server = NatsServer(tmp_path / "leaf", extra=everybody)
    server.start()
    try:
        async with AsyncExitStack() as stack:
            agent, gps, other = [
                await stack.enter_async_context(
                    await patient.connect(server.url, user=user, password="a")
                )
                for user in ("agent", "gps", "other")
            ]

            async def keep(message: Any) -> None:
                await message.respond(b'{"kept":1}')

            await agent.subscribe("app.>", cb=keep)
            commands = await gps.subscribe("cmd.unlock")
            await asyncio.gather(agent.flush(), gps.flush())
            await other.publish("app.other.x", b"1", reply="cmd.unlock")
            assert (await commands.next_msg(30)).data == b'{"kept":1}'
    finally:
        server.stop()

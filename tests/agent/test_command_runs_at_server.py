"""With real servers: what becomes of a command that is carried out: by an executable, or by a program that is asked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from backhaul_agent.commands.decide import ended
from backhaul_agent.commands.handlers import NotDeliveredError, ask_program
from backhaul_agent.ledger.command_rows import RunOutcome, RunState
from backhaul_codec.protocol.command_errors import ErrorCode
from tests.agent.command_rig import row
from tests.support.rig import patient
from tests.support.waiting import until

if TYPE_CHECKING:
    from nats.aio.msg import Msg

    from tests.support.nats_server import NatsServer

pytestmark = pytest.mark.nats


async def test_what_becomes_of_a_command_for_a_program(nats_server: NatsServer) -> None:
    program, agent = [await patient.connect(nats_server.url) for _ in range(2)]

    async def ask(answer: bytes | None, timeout_s: float = 30.0) -> RunOutcome:
        async def on_command(message: Msg) -> None:
            if answer is not None:
                await message.respond(answer)

        subscription = await program.subscribe("cmd.plain", cb=on_command)
        await program.flush()
        try:
            return await ask_program(agent, row(), timeout_s=timeout_s, result_bytes_max=64)
        finally:
            await subscription.unsubscribe()
            await program.flush()

    with pytest.raises(NotDeliveredError):
        await ask_program(agent, row(), timeout_s=30, result_bytes_max=64)
    assert await ask(b'{"open": true}') == RunOutcome(RunState.DONE, result=b'{"open":true}')
    assert await ask(b"") == RunOutcome(RunState.DONE, result=b"null")
    assert await ask(b'{"error": "jammed"}') == ended(ErrorCode.BY_PROGRAM, why="jammed")
    assert (await ask(b"{")).state is RunState.FAILED
    assert (await ask(b"1" * 65)).error.startswith("its result had 65 bytes")
    # Whether it was carried out nobody can know.
    assert (await ask(None, timeout_s=0.1)).state is RunState.INTERRUPTED
    asking = asyncio.create_task(ask(None, timeout_s=60))
    await until(lambda: len(agent._resp_map) > 0)
    await agent.close()
    assert (await asking).state is RunState.INTERRUPTED
    await program.close()

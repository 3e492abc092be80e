"""With real servers: one ledger, one agent: real processes on one configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.agent.second_agent import second
from tests.support.agent_process import AgentProcess

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.nats_server import NatsServer

pytestmark = pytest.mark.nats


async def test_after_a_kill_the_next_agent_takes_over(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    first = AgentProcess(tmp_path, nats_server.url)
    first.start()
    try:
        await first.ready()
        assert second(first).returncode == 1
        first.kill()
        first.start()
        await first.ready()
    finally:
        first.stop()

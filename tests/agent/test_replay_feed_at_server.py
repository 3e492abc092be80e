"""With real servers: replay: recordings become exactly the points the mapping says, and nothing is dropped silently."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from backhaul_agent.cli.main import cli
from backhaul_runtime.clock import SystemClock
from tests.agent.wide_recording import CSV, WIDE, points, write
from tests.support.agent_process import AgentProcess
from tests.support.agent_streams import points_of
from tests.support.rig import patient

if TYPE_CHECKING:
    from tests.support.nats_server import NatsServer

pytestmark = pytest.mark.nats


async def test_a_replay_through_a_running_agent(tmp_path: Path, nats_server: NatsServer) -> None:
    recording = write(tmp_path / "r.csv", CSV)
    mapping = write(tmp_path / "m.toml", WIDE.format(unit="s"))
    command = ["replay", str(recording), "--map", str(mapping), "--speed", "max", "--url"]
    agent = AgentProcess(tmp_path / "agent", nats_server.url)
    agent.start()
    try:
        await agent.ready()
        started_ns = SystemClock().now_ns() - 10**6  # stamps are in ms
        result = await run(*command, nats_server.url)
        assert result.exit_code == 0, result.output
        assert "5 rows, 9 points: 9 kept, 0 refused, 0 not known\n" in result.output
        assert (
            "2 rows without a valid time, stamped by the agent when it took them in"
            " (rows count from 0): 2-3" in result.output
        )
        await agent.drained()
        client = await patient.connect(nats_server.url)
        found = await points_of(client, "OUT_bulk")
        await client.close()
        expected, _ = points(recording, mapping)
        given = [point for point in found if point.time < started_ns]
        assert sorted(map(repr, given)) == sorted(map(repr, expected))
        stamped = [point for point in found if point.time >= started_ns]
        assert [p.value for p in stamped if p.type == "soc"] == [80.0, 80.0]
        assert [(p.key, p.value) for p in stamped if p.type == "mode"] == 2 * [("b", "D")]
        for type_ in ("soc", "mode"):
            stamps = [point.time for point in stamped if point.type == type_]
            assert stamps == sorted(stamps), "the order of the rows is that of their times"
        result = await run("status", "--json", "--url", nats_server.url)
        assert '"points_kept": 9' in result.output
        result = await run("status", "--config", str(agent.config))
        assert "device    VID-001" in result.output
    finally:
        agent.stop()
    result = await run(*command, nats_server.url)
    assert "nobody is listening" in str(result.exception)


async def run(*arguments: str) -> Any:
    """Run a command in a thread: it has an event loop of its own."""
    import asyncio

    return await asyncio.to_thread(CliRunner().invoke, cli, list(arguments))

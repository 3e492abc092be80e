"""With real servers: a leaf server that has stopped to dial: found, told, and restarted no more often than is sensible."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from backhaul_agent.cli.vehicle import leaf_check
from backhaul_agent.leaf import dial_check
from backhaul_agent.leaf.config_text import LEAF_LOG, LeafServer, render_leaf
from backhaul_codec.protocol.identity import Identity
from tests.support.agent_process import AgentProcess
from tests.support.nats_server import NatsServer
from tests.support.rig.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.nats


async def test_a_leaf_server_that_does_not_dial_is_restarted_and_the_agent_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no remote, so it dials as little as one of issue 7615; its agent's files say that it has."""
    monkeypatch.setattr(dial_check, "LOOK_S", 0.5)
    port = free_port()
    leaf = NatsServer(tmp_path / "leaf")
    hub = NatsServer(
        tmp_path / "hub", domain="hub", extra=f'leafnodes {{ listen: "127.0.0.1:{port}" }}'
    )
    extra = "[link]\nredial_after_s = 0.5\n[health]\ninterval_s = 0.1\npatience = 0\n"
    agent = AgentProcess(tmp_path / "agent", leaf.url, extra=extra)
    vehicle = Identity(device="VID-001", token="t", leaf_urls=(f"nats-leaf://127.0.0.1:{port}",))
    conf = render_leaf(vehicle, LeafServer(4222, str(tmp_path / "agent")))
    (tmp_path / "agent" / "leaf.conf").write_text(conf)
    log = tmp_path / "agent" / LEAF_LOG
    log.write_text("started\n")

    async def check() -> tuple[int, str]:
        command = ["--config", str(agent.config)]
        found = await asyncio.to_thread(CliRunner().invoke, leaf_check.command, command)
        return found.exit_code, found.output

    def suspect(status: dict[str, Any]) -> bool:
        return bool(status["leaf"]["redial"]["suspect"])

    leaf.start()
    agent.start()
    try:
        await agent.wait_for(suspect)
        code, said = await check()
        assert (code, "does not answer" in said) == (1, True), said
        hub.start()
        log.unlink()
        code, said = await check()
        assert (code, "cannot be read" in said) == (1, True), said
        log.write_text("started\n")
        code, said = await check()
        assert (code, "has not dialled" in said) == (0, True), said
        status = await agent.wait_for(
            lambda status: "leaf-not-dialing" in {each["code"] for each in status["conditions"]}
        )
        assert status["leaf"]["redial"]["restarts"] == 1
    finally:
        agent.stop()
        leaf.stop()
        hub.stop()

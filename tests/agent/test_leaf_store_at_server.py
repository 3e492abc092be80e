"""A leaf server whose disk is full, run for real: the agent waits, says so, and goes on once there is room."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from backhaul_agent.cli.vehicle import leaf_check
from backhaul_agent.client import connect
from backhaul_codec import Opaque
from tests.support.agent_process import AgentProcess
from tests.support.agent_streams import read_stream
from tests.support.nats_server import NatsServer
from tests.support.rig import patient
from tests.support.small_disk import small_disk

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.small_disk import SmallDisk

pytestmark = pytest.mark.nats
__all__ = ["small_disk"]
MIB = 1 << 20
SETTINGS = f"""
[frame]
age_s_max = 0.05
[streams]
out_live_bytes_max = {MIB}
out_bulk_bytes_max = {16 * MIB}
[health]
interval_s = 0.1
patience = 0
"""


def shown(status: dict[str, Any]) -> set[str]:
    """Return the codes of the conditions that the agent shows."""
    return {each["code"] for each in status["conditions"]}


async def test_a_full_leaf_loses_nothing_and_goes_on_after_its_restart(
    tmp_path: Path, small_disk: Callable[[int], SmallDisk]
) -> None:
    disk = small_disk(32 * MIB)
    leaf = NatsServer(disk.path / "leaf")
    leaf.start()
    agent = AgentProcess(tmp_path / "agent", leaf.url, extra=SETTINGS)
    agent.start()
    try:
        await agent.ready()
        kept = await publish(leaf.url, 0, 20)
        await agent.drained()
        disk.fill()
        kept += await publish(leaf.url, 20, 400)
        status = await agent.wait_for(
            lambda status: "no space left" in status["leaf"]["failed_streams"].get("OUT_bulk", "")
        )
        await agent.wait_for(lambda status: "leaf-store" in shown(status))
        assert "restart it" in status["last_error"]
        check = await asyncio.to_thread(CliRunner().invoke, leaf_check.command, ["--url", leaf.url])
        assert check.exit_code == 1
        assert "still full" in check.output
        kept += await publish(leaf.url, 420, 20)
        disk.drain()
        check = await asyncio.to_thread(CliRunner().invoke, leaf_check.command, ["--url", leaf.url])
        assert check.exit_code == 0, check.output
        leaf.stop()  # what backhaul-leaf-check.service does
        leaf.start()
        await agent.drained()
        status = await agent.wait_for(lambda status: not status["leaf"]["failed_streams"])
        await agent.wait_for(lambda status: "leaf-store" not in shown(status))
        last = status["lanes"]["bulk"]["last_seq"]
        client = await patient.connect(leaf.url)
        seqs = [found.message.seq for found in await read_stream(client, "OUT_bulk")]
        await client.close()
        assert seqs == list(range(1, last + 1))
        assert status["ledger"]["evicted_messages"] == 0
        assert status["counters"]["points_kept"] == kept
    finally:
        agent.stop()
        leaf.stop()


async def test_ledger_and_leaf_on_one_full_disk_account_for_everything(
    tmp_path: Path, small_disk: Callable[[int], SmallDisk]
) -> None:
    """Nothing is refused, the oldest goes with receipts, and all the rest is in OUT once."""
    disk = small_disk(32 * MIB)
    leaf = NatsServer(disk.path / "leaf")
    leaf.start()
    limits = f"{SETTINGS}[ingest]\npending_bytes_max = {MIB}\n"
    reserve = f"reserve_bytes = {4 * MIB}\n"
    agent = AgentProcess(disk.path / "agent", leaf.url, extra=reserve + limits)
    agent.start()
    try:
        await agent.ready()
        kept = await publish(leaf.url, 0, 300)
        disk.fill()
        kept += await publish(leaf.url, 300, 700)
        status = await agent.wait_for(lambda status: bool(status["leaf"]["failed_streams"]))
        assert status["ledger"]["disk_full"]
        await agent.wait_for(lambda status: {"disk-full", "leaf-store"} <= shown(status))
        assert status["ledger"]["evicted_messages"] > 0
        assert status["counters"]["refused"] == {}
        disk.drain()
        await agent.wait_for(lambda status: bool(status["ledger"]["reserve_held"]))
        leaf.stop()
        leaf.start()
        status = await agent.drained()
        assert not status["ledger"]["disk_full"]
        await agent.wait_for(lambda status: not {"disk-full", "leaf-store"} & shown(status))
        assert status["counters"]["points_kept"] == kept
        client = await patient.connect(leaf.url)
        held = [found.message.seq for found in await read_stream(client, "OUT_bulk")]
        explained: set[int] = set()
        for found in await read_stream(client, "OUT_live"):
            if found.subject == "e.receipt":
                value = found.message.points[0].value
                assert isinstance(value, Opaque)
                said = json.loads(value.data)
                assert said["lane"] == "bulk"
                explained |= set(range(said["lo"], said["hi"] + 1))
        await client.close()
        last = status["lanes"]["bulk"]["last_seq"]
        assert len(held) == len(set(held))
        assert set(held) | explained == set(range(1, last + 1))
    finally:
        agent.stop()
        leaf.stop()


async def publish(url: str, first: int, count: int) -> int:
    """Publish texts that come to 6 KB compressed; return how many were kept."""
    async with connect(url) as agent:
        for number in range(first, first + count):
            await agent.publish("noise", "text", random.Random(number).randbytes(6000).hex())
    return count

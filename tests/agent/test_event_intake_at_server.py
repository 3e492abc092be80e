"""With real servers: events that programs report: what is said reaches OUT as it was said, and nothing else passes."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from backhaul_agent.cli.main import cli
from backhaul_agent.client import connect
from backhaul_agent.errors import RefusedError
from backhaul_codec import Opaque
from backhaul_codec.subjects import app_event_subject
from tests.agent.bench import bench
from tests.support.agent_streams import read_stream

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.nats_server import NatsServer

pytestmark = pytest.mark.nats


async def test_an_event_is_answered_when_it_is_in_the_ledger(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with bench(tmp_path, nats_server) as it:
        it.disk.error = sqlite3.OperationalError("disk I/O error")
        refused = await it.ask("agent.event.armed", '{"reason": "pilot"}')
        assert refused["error"]["code"] == "storage"
        it.disk.error = None
        assert await it.ask("agent.event.armed", '{"reason": "pilot"}') == {"kept": 1}
        async with connect(nats_server.url) as agent:
            await agent.event("failsafe", previous="armed", data={"lost_s": 3}, time=5)
            with pytest.raises(RefusedError, match="unsupported"):
                await agent.event("failsafe", data=object())
            with pytest.raises(RefusedError, match="has a kind"):
                await agent.event("")
        command = ["event", "landed", "--url", nats_server.url, "--data", "[1, 2]"]
        found = await asyncio.to_thread(CliRunner().invoke, cli, command, catch_exceptions=False)
        assert found.exit_code == 0, found.output
        await it.drained()
        events = [
            each
            for each in await read_stream(it.client, "OUT_live")
            if each.subject.startswith("e.app.")
        ]
        assert [each.subject for each in events] == [
            app_event_subject(kind) for kind in ("armed", "failsafe", "landed")
        ]
        values = [each.message.points[0].value for each in events]
        assert [json.loads(value.data) for value in values if isinstance(value, Opaque)] == [
            {"kind": "armed", "reason": "pilot"},
            {"kind": "failsafe", "previous": "armed", "data": {"lost_s": 3}},
            {"kind": "landed", "data": [1, 2]},
        ]
        assert events[1].message.points[0].time == 5


async def test_a_refusal_that_nobody_waits_for_is_told_in_one_place(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with bench(tmp_path, nats_server) as it:
        rejected = await it.client.subscribe("agent.rejected.>")
        await it.client.flush()
        await it.client.publish("agent.event.armed", b"[]")
        note = json.loads((await rejected.next_msg(timeout=30)).data)
        assert (note["subject"], note["error"]["code"]) == ("agent.event.armed", "bad_field")

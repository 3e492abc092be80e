"""The streams and consumers of a running agent on its leaf server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from backhaul_codec import decode
from tests.agent.bench import bench

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.nats_server import NatsServer

pytestmark = pytest.mark.nats


async def test_a_foreign_message_in_out_is_passed_over(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    """Local permissions should forbid it; if not, our appends must go on."""
    async with bench(tmp_path, nats_server) as it:
        assert await it.ask("app.a.b", "1") == {"kept": 1}
        await it.drained()
        await it.client.publish("f.x", b"garbage")
        await it.client.flush()
        assert await it.ask("app.a.b", "2") == {"kept": 1}
        await it.until(lambda status: status["lanes"]["bulk"]["last_seq"] == 2)
        status = await it.drained()
        assert status["lanes"]["bulk"]["foreign_messages"] == 1
        answer = await it.ask("$JS.API.STREAM.INFO.OUT_bulk", b"")
        assert answer["state"]["messages"] == 3


async def test_streams_and_consumers_are_as_the_hub_needs_them(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with bench(
        tmp_path, nats_server, extra="[link]\nrate_kbit_s = 20.0\nadaptive = false\n"
    ) as it:
        for lane, subjects, window in (
            ("live", ["p.>", "e.>", "r.>"], 67),
            ("bulk", ["f.>", "b", "d.>"], 5),
        ):
            stream = (await it.ask(f"$JS.API.STREAM.INFO.OUT_{lane}", b""))["config"]
            assert stream["subjects"] == subjects
            assert (stream["discard"], stream["storage"]) == ("old", "file")
            consumer = (await it.ask(f"$JS.API.CONSUMER.INFO.OUT_{lane}.tok1", b""))["config"]
            assert consumer["ack_policy"] == "flow_control"
            assert consumer["deliver_subject"] == f"dlv.VID-001.tok1_{lane}"
            assert consumer["max_ack_pending"] == window
    async with bench(
        tmp_path, nats_server, extra="[link]\nrate_kbit_s = 40.0\nadaptive = false\n"
    ) as it:
        consumer = (await it.ask("$JS.API.CONSUMER.INFO.OUT_bulk.tok1", b""))["config"]
        assert consumer["max_ack_pending"] == 10


async def test_in_is_sourced_from_the_devices_part_of_down(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with bench(tmp_path, nats_server, down='down_stream = "DOWN_00"\n') as it:
        (source,) = (await it.ask("$JS.API.STREAM.INFO.IN", b""))["config"]["sources"]
        assert source["name"] == "DOWN_00"
        assert source["external"]["api"] == "hubapi"
        assert source["consumer"]["name"] == "VID-001-tok1"
        assert source["consumer"]["deliver_subject"] == "dn.VID-001.tok1"
        assert source["subject_transforms"] == [{"src": "in.VID-001.>", "dest": ">"}]


async def test_a_durable_that_a_stray_reset_put_ahead_of_its_stream_delivers_again(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    """Random faults, seed 3: a reset for the stream before this one reached the new durable."""
    async with bench(tmp_path, nats_server) as it:
        arrived = await it.client.subscribe("dlv.VID-001.tok1_bulk")
        await it.client.flush()
        reset = await it.ask("$JS.API.CONSUMER.RESET.OUT_bulk.tok1", '{"seq": 285}')
        assert "error" not in reset
        assert await it.ask("app.battery.soc", "81.2") == {"kept": 1}
        async with asyncio.timeout(60):
            while True:
                message = await arrived.next_msg(30)
                if message.data:
                    break
        (point,) = decode(message.data, node="battery").points
        assert (point.type, point.value) == ("soc", 81.2)
        stream = await it.ask("$JS.API.STREAM.INFO.OUT_bulk", b"")
        assert stream["state"]["last_seq"] >= 285

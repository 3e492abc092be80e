"""An agent some of whose nodes have lanes of their own, on a real leaf server; the hub is played.

Modelled: kill -9 of agent and leaf under load, both directions, a node that is named and no longer
is. Not covered here: the hub's part (tests/integration/test_per_node.py).
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.client import Agent, connect
from backhaul_agent.client.config import ConfigClient
from backhaul_codec import Kind, Point, encode_point
from tests.agent.bench import Bench, bench
from tests.agent.crash_load import QUICK, Load, check, kill_while_it_grows
from tests.agent.histories import points_of as history_of
from tests.support.agent_process import AgentProcess
from tests.support.agent_streams import CLOCK, MARK, read_stream, watermark
from tests.support.hub_word import hub_that_knows
from tests.support.rig import patient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.aio.client import Client

    from tests.support.nats_server import NatsServer

pytestmark = pytest.mark.nats
DOWN = {"name": "DOWN", "subjects": ["in.VID-001.>"], "max_msgs_per_subject": 1}


@pytest.fixture(autouse=True)
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backhaul_agent.downlink.reader.POLL_S", 0.05)


async def test_kills_lose_and_double_nothing_in_any_lane(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    own = '[streams]\nper = "node"\nnodes = ["live", "small", "large"]\n'
    agent = AgentProcess(tmp_path / "agent", nats_server.url, extra=QUICK + "\n" + own)
    agent.start()
    try:
        await agent.ready()
        load = Load(nats_server.url)
        running = asyncio.create_task(load.run())
        await kill_while_it_grows(agent, load, 30, 200, 77)
        await load.grows(100)
        nats_server.kill()
        nats_server.start()
        await kill_while_it_grows(agent, load, 100)
        load.stopping = True
        await running
        # What was staged under an epoch that nobody vouched for waits until a hub has spoken.
        async with hub_that_knows(nats_server.url):
            await agent.drained()
        lanes = ("live", "bulk", "n_live", "n_small", "n_large")
        await check(nats_server, load, tuple(f"OUT_{lane}" for lane in lanes))
        await all_in_their_own_lanes(nats_server, "live", "small", "large")
    finally:
        agent.stop()


async def all_in_their_own_lanes(server: NatsServer, *nodes: str) -> None:
    """Nothing about the nodes is in a shared lane, and nothing else is in theirs."""
    client = await patient.connect(server.url)
    try:
        for lane in ("live", "bulk"):
            found = await read_stream(client, f"OUT_{lane}")
            assert not {point.node for each in found for point in each.message.points} & {*nodes}
        for node in nodes:
            found = await read_stream(client, f"OUT_n_{node}")
            assert {point.node for each in found for point in each.message.points} == {node}
    finally:
        await client.close()


@asynccontextmanager
async def gps_of_its_own(path: Path, server: NatsServer) -> AsyncIterator[tuple[Bench, Agent]]:
    own = '[streams]\nper = "node"\nnodes = ["gps"]\n'
    async with bench(path, server, extra=own) as it, connect(server.url) as agent:
        yield it, agent


def inward(stream: str, part: str) -> dict[str, Any]:
    transform = {"src": f"in.VID-001.{part}", "dest": part}
    return {
        "name": stream,
        "max_msgs_per_subject": 1,
        "allow_direct": True,
        "republish": {"src": ">", "dest": "agent.in.>", "headers_only": True},
        "sources": [{"name": "DOWN", "subject_transforms": [transform]}],
    }


async def make_down(it: Bench) -> None:
    """Make on the leaf itself what the hub's server would deliver into."""
    of_device = inward("IN", "p.>")
    words = {"src": "in.VID-001.s.>", "dest": "s.>"}
    of_device["sources"][0]["subject_transforms"].append(words)
    for stream in (DOWN, of_device, inward("IN_n_gps", "n.gps.>")):
        answer = await it.ask(f"$JS.API.STREAM.CREATE.{stream['name']}", json.dumps(stream))
        assert "error" not in answer, answer


async def write_at_the_hub(it: Bench, subject: str, point: Point | bytes) -> None:
    data = point if isinstance(point, bytes) else encode_point(point, epoch=0, seq=0)
    await it.client.request(f"in.VID-001.{subject}", data, timeout=30)


async def sent(it: Bench, lane: str) -> list[tuple[str, Kind]]:
    await it.drained()
    found = await read_stream(it.client, f"OUT_{lane}")
    return [
        (each.subject, each.message.kind) for each in found if each.subject not in (MARK, CLOCK)
    ]


async def until_stored(client: Client, stream: str, messages: int | None) -> None:
    """Wait until a stream holds so many messages; None: until there is no such stream."""
    async with asyncio.timeout(60):
        while True:
            answer = await client.request(f"$JS.API.STREAM.INFO.{stream}", b"", timeout=30)
            info = json.loads(answer.data)
            if info.get("state", {}).get("messages") == messages:
                return
            await asyncio.sleep(0.02)


async def values(agent: Agent, node: str) -> dict[str, Any]:
    return {point["type"]: point["value"] for point in await ConfigClient(agent).get(node)}


async def test_both_directions_go_through_the_nodes_own_streams(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with gps_of_its_own(tmp_path, nats_server) as (it, agent):
        await make_down(it)
        await write_at_the_hub(
            it, "n.gps.p.gps.rate.%", Point("gps", "rate", 10**18, 2.0, origin="hub")
        )
        await write_at_the_hub(
            it, "p.door.lock.%", Point("door", "lock", 10**18, 1.0, origin="hub")
        )
        await it.until(lambda status: status["counters"]["downlink_messages"] == 2)
        assert (await values(agent, "gps"), await values(agent, "door")) == (
            {"rate": 2.0}, {"lock": 1.0}
        )  # fmt: skip
        await ConfigClient(agent).set("gps", {"rate": 3.0})
        await ConfigClient(agent).set("door", {"lock": 0.0})
        assert await sent(it, "n_gps") == [
            ("n.gps.e.seen", Kind.POINT), ("n.gps.p.gps.rate.%", Kind.POINT)
        ]  # fmt: skip
        assert await sent(it, "live") == [("e.seen", Kind.POINT), ("p.door.lock.%", Kind.POINT)]


async def test_a_point_in_another_nodes_stream_is_garbage(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with gps_of_its_own(tmp_path, nats_server) as (it, agent):
        await make_down(it)
        await write_at_the_hub(it, "n.gps.p.door.lock.%", Point("door", "lock", 10**18, 2.0))
        await it.until(lambda status: status["counters"]["downlink_garbage"] == 1)
        assert await values(agent, "door") == {}


async def test_the_hub_confirms_and_asks_again_in_a_nodes_lane(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with gps_of_its_own(tmp_path, nats_server) as (it, agent):
        await make_down(it)
        for number in range(3):
            await agent.publish_batch("gps", [Point("gps", "lat", number, float(number))])
            await it.drained()
        await write_at_the_hub(it, "s.watermark.n_gps", await watermark(it.client, "n_gps", 1))
        await it.until(lambda status: status["lanes"]["n_gps"]["watermark"] == 1)
        ask = {"epoch": 42, "ranges": [[2, 3]], "id": 1}
        await write_at_the_hub(it, "s.resend.n_gps", json.dumps(ask).encode())
        await it.until(lambda status: status["counters"]["downlink_messages"] == 2)
        await until_stored(it.client, "OUT_n_gps", 5)
        found = await read_stream(it.client, "OUT_n_gps")
        assert [each.message.seq for each in found] == [1, 2, 3, 2, 3]


async def test_a_node_no_longer_named_shares_again_and_loses_nothing(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    """What the hub had sent for it is read, its stream down goes, and its lane up is answered for."""
    async with gps_of_its_own(tmp_path, nats_server) as (it, agent):
        await make_down(it)
        await agent.publish("gps", "lat", 1.0, time=1)
        await it.drained()
    client = await patient.connect(nats_server.url)  # while the agent is away
    late = encode_point(Point("gps", "rate", 10**18, 7.0, origin="hub"), epoch=0, seq=0)
    await client.request("in.VID-001.n.gps.p.gps.rate.%", late, timeout=30)
    await until_stored(client, "IN_n_gps", 1)
    await client.close()
    async with bench(tmp_path, nats_server) as it, connect(nats_server.url) as agent:
        await agent.publish("gps", "lat", 2.0, time=2)
        assert (await sent(it, "bulk"))[-1] == ("b", Kind.BUNDLE)
        await until_stored(it.client, "IN_n_gps", None)
        assert await values(agent, "gps") == {"rate": 7.0}
        ask = {"epoch": 42, "ranges": [[1, 1]], "id": 1}
        await write_at_the_hub(it, "s.resend.n_gps", json.dumps(ask).encode())
        await until_stored(it.client, "OUT_n_gps", 2)
        found = await read_stream(it.client, "OUT_n_gps")
        assert [each.message.seq for each in found] == [1, 1]
    async with gps_of_its_own(tmp_path, nats_server) as (it, agent):
        async with hub_that_knows(nats_server.url):
            await it.until(lambda status: bool(status["ledger"]["epoch"] == "goes_on"))
        await agent.publish("gps", "lat", 3.0, time=3)
        await it.drained()
        found = await read_stream(it.client, "OUT_n_gps")
        # The epoch is the one that began when nobody vouched for the first.
        assert {(each.message.epoch, each.message.seq) for each in found} == {(42, 1), (43, 1)}
        assert await history_of(agent, "gps.lat") == [(1, 1.0), (2, 2.0), (3, 3.0)]

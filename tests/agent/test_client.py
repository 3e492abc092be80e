"""A program's end on a real leaf server: what it sends, and what it is told."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from backhaul_agent.client import Agent, connect
from backhaul_agent.errors import NoAgentError, NotKnownError, RefusedError
from backhaul_codec import Opaque, Point, Value, decode
from tests.agent.bench import bench
from tests.support.agent_clock import FakeClock
from tests.support.agent_streams import points_of
from tests.support.rig import patient

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.msg import Msg

    from tests.support.nats_server import NatsServer

pytestmark = pytest.mark.nats


async def test_the_client_keeps_every_kind_of_value(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    values: list[Value] = [
        81.2,
        -0.0,
        float("inf"),
        7,
        -(2**63),
        2**64 - 1,
        "N",
        "",
        b"\x00\xff",
        Opaque(6, b"{}"),
    ]
    async with bench(tmp_path, nats_server) as it, connect(nats_server.url) as agent:
        for number, value in enumerate(values):
            await agent.publish("n", "t", value, key="k", time=number)
        await it.drained()
        found = await points_of(it.client, "OUT_bulk")
        assert [(p.time, p.key, repr(p.value)) for p in found] == [
            (number, "k", repr(value)) for number, value in enumerate(values)
        ]


async def test_batches_and_singles_of_a_node_stay_in_order(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with bench(tmp_path, nats_server) as it, connect(nats_server.url) as agent:
        number = 0
        for count in (1, 3, 50, 2, 1, 15, 4):
            points = [Point("n", "t", number + i, float(number + i)) for i in range(count)]
            number += count
            if count == 1:
                await agent.publish("n", "t", points[0].value, time=points[0].time)
            else:
                assert await agent.publish_batch("n", points) == count
        async with agent.batch("n") as batch:
            batch.add("t", float(number), time=number)
        assert batch.kept == 1
        await it.drained()
        assert [p.time for p in await points_of(it.client, "OUT_bulk")] == list(range(number + 1))


async def test_the_client_says_which_stamps_are_its_own(nats_server: NatsServer) -> None:
    """Somebody else hears what it sends: whose stamps they are, frame by frame."""
    heard: list[tuple[str | None, list[tuple[int, Value]]]] = []
    all_heard = asyncio.Event()

    async def hear(message: Msg) -> None:
        points = decode(message.data, node="n").points
        header = (message.headers or {}).get("Backhaul-Clock")
        heard.append((header, [(point.time, point.value) for point in points]))
        if message.reply:
            await message.respond(b'{"kept": %d}' % len(points))
        if len(heard) == 7:
            all_heard.set()

    other = await patient.connect(nats_server.url)
    await other.subscribe("app.n", cb=hear)
    await other.flush()
    clock = FakeClock(5_000_000)
    async with connect(nats_server.url, clock=clock) as agent:
        async with agent.batch("n", frame_points=2) as batch:
            for value in (1.0, 2.0, 3.0):
                batch.add("t", value)
            batch.add("t", 4.0, time=7)
            await batch.put(Point("n", "t", 8, 5.0))
            batch.add("t", 6.0)
        assert batch.kept == 6
        await agent.publish("n", "t", b"own")
        await agent.publish("n", "t", b"given", time=9)
        await agent.send("n", "t", b"sent")
        await agent.nats.flush()
        async with asyncio.timeout(60):
            await all_heard.wait()
    await other.close()
    now = clock.now_ns()
    assert heard == [
        ("system", [(now, 1.0), (now, 2.0)]),
        ("system", [(now, 3.0)]),
        (None, [(7, 4.0), (8, 5.0)]),
        ("system", [(now, 6.0)]),
        ("system", [(now, b"own")]),
        (None, [(9, b"given")]),
        ("system", [(now, b"sent")]),
    ]


async def test_the_client_raises_what_it_was_told(tmp_path: Path, nats_server: NatsServer) -> None:
    async with bench(tmp_path, nats_server) as it, connect(nats_server.url) as agent:
        for attempt, code in (
            (agent.publish("n", "t", "x" * 1500), "too_large"),
            (agent.publish("n", "t", True), "bad_value"),
            (agent.publish("n", "t", b"", lane="live"), "bad_value"),
            (agent.publish("n", "t", 2**64), "bad_value"),
            (agent.publish("", "t", 1.0), "bad_subject"),
            (agent.publish_batch("n", [Point("m", "t", 1, 1.0)]), "bad_frame"),
            (agent.publish_batch("n", [Point("n", "t", 2**63, 1.0)]), "bad_value"),
        ):
            with pytest.raises(RefusedError) as caught:
                await attempt
            assert caught.value.code == code
        assert await it.ask("app.a.b", "1") == {"kept": 1}


async def test_the_client_says_when_nobody_listens(nats_server: NatsServer) -> None:
    async with connect(nats_server.url) as agent:
        with pytest.raises(NoAgentError, match="is backhaul-agent running"):
            await agent.publish("n", "t", 1.0)


async def test_the_client_says_when_it_does_not_know(nats_server: NatsServer) -> None:
    other = await patient.connect(nats_server.url)
    await other.subscribe("app.>")
    await other.flush()
    async with connect(nats_server.url) as agent:
        hasty = Agent(agent.nats, 0.05, agent.clock)
        with pytest.raises(NotKnownError, match="may or may not be kept"):
            await hasty.publish("n", "t", 1.0)
    await other.close()


async def test_the_client_needs_a_server() -> None:
    with pytest.raises(NoAgentError, match=r"refused|Connect call failed"):
        async with connect("nats://127.0.0.1:1", wait_s=2):
            pass


async def test_a_server_that_says_nothing_gives_no_answer() -> None:
    there: list[asyncio.StreamWriter] = []
    async with await asyncio.start_server(
        lambda _, writer: there.append(writer), "127.0.0.1"
    ) as server:
        url = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(NoAgentError, match=f"^{url}: no answer: "):
            async with connect(url, wait_s=0.2):
                pass
        for writer in there:
            writer.close()

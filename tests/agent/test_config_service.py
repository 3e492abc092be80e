"""Heads on a real leaf server: programs and the command line write them, hear of them, are refused."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from backhaul_agent.cli.main import cli
from backhaul_agent.client import connect
from backhaul_agent.client.config import ConfigClient
from backhaul_agent.errors import RefusedError
from backhaul_codec import Kind, Opaque, Point, encode_frame, encode_point
from tests.agent.bench import Bench, bench
from tests.support.agent_streams import CLOCK, MARK, read_stream

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.nats_server import NatsServer

pytestmark = pytest.mark.nats
# Made on the leaf itself: the agent's part ends at IN.
DOWN = {"name": "DOWN", "subjects": ["in.VID-001.>"], "max_msgs_per_subject": 1}
IN = {
    "name": "IN",
    "max_msgs_per_subject": 1,
    "allow_direct": True,
    "republish": {"src": ">", "dest": "agent.in.>", "headers_only": True},
    "sources": [
        {"name": "DOWN", "subject_transforms": [{"src": "in.VID-001.>", "dest": ">"}]},
    ],
}


async def make_down(it: Bench) -> None:
    for stream in (DOWN, IN):
        answer = await it.ask(f"$JS.API.STREAM.CREATE.{stream['name']}", json.dumps(stream))
        assert "error" not in answer


async def write_at_the_hub(it: Bench, subject: str, data: bytes) -> None:
    await it.client.request(f"in.VID-001.{subject}", data, timeout=30)


async def run(server: NatsServer, *arguments: str) -> Any:
    """Run the command line in a thread; what it raises is what `main` would print."""
    command = [*arguments, "--url", server.url]
    return await asyncio.to_thread(CliRunner().invoke, cli, command)


async def live(it: Bench) -> list[tuple[str, Kind]]:
    await it.drained()
    found = await read_stream(it.client, "OUT_live")
    own = (MARK, CLOCK)  # the agent's own words
    return [(each.subject, each.message.kind) for each in found if each.subject not in own]


async def test_what_is_set_is_kept_announced_and_sent(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with bench(tmp_path, nats_server) as it, connect(nats_server.url) as agent:
        heard = await it.client.subscribe("agent.changed.>")
        await it.client.flush()
        config = ConfigClient(agent)
        (written,) = await config.set("gps", {"rate": 5})
        assert (written["type"], written["value"], written["dtype"]) == ("rate", 5, "int64")
        message = await heard.next_msg(30)
        assert message.subject == "agent.changed.gps.rate.%"
        assert json.loads(message.data) == written
        assert await config.get("gps") == [written]
        await config.set("gps", {"mode": "fast", ("map", "k.1"): Opaque(6, b"[1]")})
        assert await live(it) == [("p.gps.rate.%", Kind.POINT), ("p.gps", Kind.FRAME)]
    async with bench(tmp_path, nats_server) as it, connect(nats_server.url) as agent:
        points = await ConfigClient(agent).get()
        assert [(p["type"], p["key"], p["value"]) for p in points] == [
            ("map", "k.1", [1]), ("mode", "", "fast"), ("rate", "", 5),
        ]  # fmt: skip


async def test_state_is_a_head_too_and_telemetry_is_not(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with bench(tmp_path, nats_server) as it, connect(nats_server.url) as agent:
        await agent.publish("door", "state", "open", lane="live")
        await agent.publish("battery", "soc", 81.2)
        assert [(p["node"], p["value"]) for p in await ConfigClient(agent).get()] == [
            ("door", "open")
        ]
        await it.drained()


async def test_refusals_come_back_with_their_code(tmp_path: Path, nats_server: NatsServer) -> None:
    async with bench(tmp_path, nats_server) as it, connect(nats_server.url) as agent:
        config = ConfigClient(agent)
        await config.change_tree("create", node="a")
        await config.change_tree("create", node="b", parent="a")
        for attempt, code in (
            (config.change_tree("move", node="a", to="b"), "cycle"),
            (config.change_tree("explode", node="a"), "bad_subject"),
            (config.set("a", {}), "bad_field"),
            (config.set("a", {"x": "y" * 1001}), "too_large"),
            (config.get("a", "b", "c", "d"), "bad_subject"),
        ):
            with pytest.raises(RefusedError) as caught:
                await attempt
            assert caught.value.code == code
        assert (await it.ask("agent.set", b"{"))["error"]["code"] == "bad_json"
        it.disk.error = OSError(28, "No space left on device")
        with pytest.raises(RefusedError) as caught:
            await config.set("a", {"x": 1})
        assert caught.value.code == "storage"
        it.disk.error = None
        await config.set("a", {"x": 2})
        heads = (await agent.status())["heads"]
        assert (heads["count"], heads["damaged_rows"], heads["edges_left_out"]) == (3, 0, 0)
        assert [p["value"] for p in await config.get("a", "x")] == [2]


async def test_writes_at_the_same_time_see_one_another(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    """Each is made from the heads that the one before left: no stamp twice, no delete lost."""
    async with bench(tmp_path, nats_server) as it, connect(nats_server.url) as agent:
        config = ConfigClient(agent)
        await config.set("n", {"x": 0})
        writes = [
            config.set("n", {"x": n}) if n % 2 else config.set("n", {}, delete=["x"])
            for n in range(20)
        ]
        answers = await asyncio.gather(*writes)
        assert len({points[0]["time"] for points in answers}) == 20
        last = max((points[0] for points in answers), key=lambda point: point["time"])
        assert await config.get("n", deleted=True) == [last]
        for number in range(20):
            node = f"n{number}"
            await config.set(node, {"x": 0})
            (deleted,), created = await asyncio.gather(
                config.set(node, {}, delete=["x"]),
                config.change_tree("create", node=node, points=[{"type": "x", "value": 1}]),
            )
            left = [point["value"] for point in await config.get(node, "x")]
            assert left == ([1.0] if created[0]["time"] > deleted["time"] else [])
        await it.drained()


async def test_what_the_hub_writes_is_merged_and_announced_at_once(
    tmp_path: Path, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(tmp_path, nats_server) as it, connect(nats_server.url) as agent:
        await make_down(it)
        config = ConfigClient(agent)
        (mine,) = await config.set("n", {"rate": 1})
        watching = config.watch("n", "rate")
        assert await anext(watching) == mine
        newer = Point("n", "rate", mine["time"] + 1, 2.0, origin="hub:ann")
        older = Point("n", "rate", mine["time"] - 1, 3.0, origin="hub")
        for point in (older, newer):
            await write_at_the_hub(it, "p.n.rate.%", encode_point(point, epoch=0, seq=0))
        async with asyncio.timeout(60):
            changed = await anext(watching)
        assert (changed["value"], changed["origin"]) == (2.0, "hub:ann")
        (again,) = await config.set("n", {"rate": 4})
        assert again["time"] > newer.time
        async with asyncio.timeout(60):
            assert await anext(watching) == again
        assert await live(it) == [
            ("p.n.rate.%", Kind.POINT), ("e.seen", Kind.POINT), ("p.n.rate.%", Kind.POINT),
        ]  # fmt: skip
        await watching.aclose()


async def test_a_frame_of_the_hub_counts_whole_or_not_at_all(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with bench(tmp_path, nats_server) as it, connect(nats_server.url) as agent:
        await make_down(it)
        points = [Point("n", name, 10**18, 1.0, origin="hub") for name in "abc"]
        frame = encode_frame(points, epoch=0, seq=0)
        await write_at_the_hub(it, "p.n", frame[:-1])
        await it.until(lambda status: status["counters"]["downlink_garbage"] == 1)
        assert await ConfigClient(agent).get() == []
        await write_at_the_hub(it, "p.n", frame)
        await it.until(lambda status: status["counters"]["downlink_messages"] == 2)
        assert [p["type"] for p in await ConfigClient(agent).get("n")] == ["a", "b", "c"]


async def test_watchers_look_again_after_the_agent_was_away(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with connect(nats_server.url) as agent:
        config = ConfigClient(agent)
        async with bench(tmp_path, nats_server):
            (first,) = await config.set("n", {"x": 1})
            watching = config.watch()
            assert await anext(watching) == first
        waiting = asyncio.ensure_future(anext(watching))
        async with bench(tmp_path, nats_server):
            async with asyncio.timeout(60):
                assert await waiting == first
        await watching.aclose()


async def test_the_command_line(tmp_path: Path, nats_server: NatsServer) -> None:
    async with bench(tmp_path, nats_server):
        missing = await run(nats_server, "get", "gps")
        assert (missing.exit_code, missing.stderr) == (1, "no such points\n")
        done = await run(nats_server, "set", "gps.rate=5", 'gps.name="7"', "gps.map.k:json=[1]")
        assert done.exit_code == 0
        assert "gps.rate" in done.stdout
        shown = await run(nats_server, "get", "gps.rate")
        assert shown.stdout.split()[:2] == ["gps.rate", "5.0"]
        assert shown.stdout.rstrip().endswith("vehicle")
        asjson = await run(nats_server, "get", "--json")
        points = json.loads(asjson.stdout)["points"]
        assert [(p["type"], p["value"]) for p in points] == [
            ("map", [1]), ("name", "7"), ("rate", 5.0),
        ]  # fmt: skip
        assert (await run(nats_server, "set", "--delete", "gps.rate")).exit_code == 0
        assert "(deleted)" in (await run(nats_server, "get", "gps.rate", "--deleted")).stdout
        for step in (
            ("create", "car", "--type", "vehicle"),
            ("create", "imu", "rate=100", "--under", "car"),
            ("mirror", "imu", "--under", "VID-001"),
            ("move", "imu", "--to", "gps", "--from", "car"),
            ("delete", "imu", "--under", "VID-001"),
            ("delete", "car"),
            ("undelete", "car"),
        ):
            result = await run(nats_server, "node", *step)
            assert result.exit_code == 0, (step, result.output, result.exception)
        tree = await run(nats_server, "tree")
        assert tree.stdout == "VID-001\n├─ car (vehicle)\n└─ gps\n   └─ imu (node)\n"
        assert json.loads((await run(nats_server, "tree", "--json")).stdout)["root"] == "VID-001"
        refused = await run(nats_server, "node", "move", "gps", "--to", "imu")
        assert isinstance(refused.exception, RefusedError)
        assert "imu > gps > imu" in str(refused.exception)


@pytest.mark.parametrize(
    "arguments",
    [
        ("set",),
        ("set", "gps"),
        ("set", "gps.rate=1", "imu.rate=1"),
        ("set", "gps.rate:int64=x"),
        ("get", "g%ps"),
        ("node", "create", "x", "y"),
    ],
)
def test_mistakes_on_the_command_line_are_said_before_anything_is_asked(
    arguments: tuple[str, ...],
) -> None:
    result = CliRunner().invoke(cli, [*arguments, "--url", "nats://127.0.0.1:1"])
    assert result.exit_code != 0
    assert isinstance(result.exception, RefusedError | SystemExit)

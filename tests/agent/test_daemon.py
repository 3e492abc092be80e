"""The daemon on a real leaf server: what programs are told, and what the lanes survive."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
from contextlib import asynccontextmanager
from itertools import chain, count
from typing import TYPE_CHECKING, Any

import nats
import pytest

from backhaul_agent.client import Agent, connect
from backhaul_agent.clock import SystemClock
from backhaul_agent.config import parse
from backhaul_agent.daemon import Daemon
from backhaul_agent.errors import NoAgentError, NotKnownError, RefusedError
from backhaul_agent.link_config import OUT_FIRST_SEQ
from backhaul_agent.sdnotify import Notifier
from backhaul_codec import Opaque, Point, Value, decode, encode_frame
from demo import patient
from tests.agent.test_ledger import FailingDisk
from tests.support.agent_clock import FakeClock
from tests.support.agent_process import AgentProcess, running
from tests.support.agent_streams import assert_no_holes, points_of, read_stream
from tests.support.hub_word import hub_that_knows

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from tests.support.nats_server import NatsServer

pytestmark = pytest.mark.nats


@pytest.fixture(autouse=True)
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backhaul_agent.in_reader.POLL_S", 0.05)


REFUSING = 'bytes_max = 1048576\nwhen_full = "refuse"\n'
SETTINGS = """
[frame]
age_s_max = 0.05
points_max = 20
bytes_max = 4096
[ingest]
value_bytes_max = 1000
stage_s_max = 0.02
"""


class Recorder(Notifier):
    """Remembers what systemd would have been told."""

    def __init__(self) -> None:
        super().__init__({})
        self.messages: list[str] = []

    def send(self, message: str) -> None:
        self.messages.append(message)


class Bench:
    """A daemon in this process, a connection beside it, and its disk in our hands."""

    def __init__(self, daemon: Daemon, client: Client, disk: FailingDisk, told: Recorder) -> None:
        self.daemon = daemon
        self.client = client
        self.disk = disk
        self.told = told

    async def ask(self, subject: str, payload: bytes | str) -> dict[str, Any]:
        data = payload.encode() if isinstance(payload, str) else payload
        message = await self.client.request(subject, data, timeout=30)
        answer: dict[str, Any] = json.loads(message.data)
        return answer

    async def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        async with asyncio.timeout(60):
            while True:
                try:
                    status = await self.ask("agent.status", b"")
                    if wanted(status):
                        return status
                except nats.errors.NoRespondersError:
                    pass
                await asyncio.sleep(0.02)

    async def drained(self) -> dict[str, Any]:
        return await self.until(
            lambda status: (
                not status["ledger"]["staged_points"]
                and all(
                    running(lane) and lane["appended"] == lane["last_seq"]
                    for lane in status["lanes"].values()
                )
            )
        )


@asynccontextmanager
async def bench(
    path: Path,
    server: NatsServer,
    *,
    extra: str = "",
    down: str = "",
    limits: str = "",
    ledger: str = "",
    drained: bool = True,
) -> AsyncIterator[Bench]:
    text = f'[device]\nid = "VID-001"\ntoken = "tok1"\n{down}[nats]\nurl = "{server.url}"\n'
    ledger = '[ledger]\npath = "ledger.db"\n' + ledger
    config = parse(text + SETTINGS + limits + "\n" + extra + ledger, path / "agent.toml")
    disk, told = FailingDisk(), Recorder()
    daemon = Daemon(
        config,
        clock=SystemClock(),
        random_u32=chain([42], count(42)).__next__,
        notifier=told,
        opener=disk,
    )
    task = asyncio.create_task(daemon.run())
    client = await patient.connect(server.url)
    made = Bench(daemon, client, disk, told)
    try:
        if drained:
            await made.drained()
        yield made
    finally:
        daemon.stop()
        await asyncio.wait_for(task, 60)
        await made.client.close()


async def test_json_publishes_are_answered(tmp_path: Path, nats_server: NatsServer) -> None:
    async with bench(tmp_path, nats_server) as it:
        assert await it.ask("app.battery.soc", "81.2") == {"kept": 1}
        assert await it.ask("app.battery.soc", '{"value": 81.3, "time": 5}') == {"kept": 1}
        assert await it.ask("app.door.state", '{"value": "open", "lane": "live"}') == {"kept": 1}
        await it.drained()
        bulk = await points_of(it.client, "OUT_bulk")
        assert [(p.node, p.type, p.value) for p in bulk] == [
            ("battery", "soc", 81.2), ("battery", "soc", 81.3),
        ]  # fmt: skip
        assert bulk[1].time == 5
        (live,) = [point for point in await points_of(it.client, "OUT_live") if point.node]
        assert (live.node, live.type, live.value) == ("door", "state", "open")


@pytest.mark.parametrize(
    ("subject", "payload", "code"),
    [
        ("app.a.b", "{", "bad_json"),
        ("app.a.b", "true", "bad_value"),
        ("app.a.b", '{"value": 1, "tiem": 2}', "bad_field"),
        ("app.a.b", '{"value": 1, "time": "yesterday"}', "bad_time"),
        ("app.a.b.c.d", "1", "bad_subject"),
        ("app.a.b", '"' + "x" * 2000 + '"', "too_large"),
        ("app.a", "x" * 100, "bad_frame"),
    ],
)
async def test_mistakes_are_answered_counted_and_cost_nothing_else(
    tmp_path: Path, nats_server: NatsServer, subject: str, payload: str, code: str
) -> None:
    async with bench(tmp_path, nats_server) as it:
        rejected = await it.client.subscribe("agent.rejected.>")
        answer = await it.ask(subject, payload)
        assert answer["error"]["code"] == code
        assert answer["error"]["message"]
        await it.client.publish(subject, payload.encode())
        note = json.loads((await rejected.next_msg(30)).data)
        assert note["subject"] == subject
        assert note["error"]["code"] == code
        assert await it.ask("app.a.b", "1") == {"kept": 1}
        status = await it.drained()
        assert status["counters"]["refused"] == {code: 2}
        assert [p.value for p in await points_of(it.client, "OUT_bulk")] == [1.0]


async def test_a_flood_is_answered_kept_or_busy_but_always_answered(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with bench(tmp_path, nats_server, limits="pending_messages_max = 16") as it:
        asking = [asyncio.create_task(it.ask("app.a.b", str(n))) for n in range(2000)]
        answers = await asyncio.gather(*asking)
        kept = [n for n, answer in enumerate(answers) if answer == {"kept": 1}]
        busy = [answer for answer in answers if answer.get("error", {}).get("code") == "busy"]
        assert kept
        assert busy
        assert len(kept) + len(busy) == 2000
        status = await it.drained()
        assert status["counters"]["refused"] == {"busy": len(busy)}
        assert [p.value for p in await points_of(it.client, "OUT_bulk")] == list(map(float, kept))


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
    now = clock.time_ns()
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


async def test_a_full_disk_is_told_and_passes(tmp_path: Path, nats_server: NatsServer) -> None:
    async with bench(tmp_path, nats_server) as it:
        assert await it.ask("app.a.b", "1") == {"kept": 1}
        await it.drained()
        it.disk.error = OSError(28, "No space left on device")
        answer = await it.ask("app.a.b", "2")
        assert answer["error"]["code"] == "storage"
        assert "No space left" in answer["error"]["message"]
        assert "No space left" in (await it.ask("agent.status", b""))["last_error"]
        it.disk.error = None
        assert await it.ask("app.a.b", "3") == {"kept": 1}
        status = await it.drained()
        assert status["last_error"] == ""
        assert [p.value for p in await points_of(it.client, "OUT_bulk")] == [1.0, 3.0]


async def test_a_corrupt_row_is_set_aside_and_the_hub_is_told(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with bench(tmp_path, nats_server) as it:
        nats_server.stop()
        await commit_directly(it, 5)
        db = sqlite3.connect(tmp_path / "ledger.db")
        with db:
            db.execute(
                "UPDATE messages SET body = substr(body, 1, 30) || x'ff' WHERE seq = 2 "
                "AND subject = 'f.n'"
            )
            db.execute("DELETE FROM messages WHERE seq = 4 AND subject = 'f.n'")
        db.close()
        nats_server.start()
        await it.client.close()
        it.client = await patient.connect(nats_server.url)
        status = await it.drained()
        assert status["ledger"]["quarantined_rows"] == 2
        found = await read_stream(it.client, "OUT_bulk")
        assert [item.message.seq for item in found] == [1, 3, 5]
        events = [p for p in await points_of(it.client, "OUT_live") if p.type == "receipt"]
        notes = [json.loads(p.value.data) for p in events]  # type: ignore[union-attr]
        assert [(n["lane"], n["epoch"], n["lo"], n["hi"]) for n in notes] == [
            ("bulk", 42, 2, 2), ("bulk", 42, 4, 4),
        ]  # fmt: skip
        assert all(note["reason"].startswith("corrupt: ") for note in notes)


async def commit_directly(it: Bench, count: int) -> None:
    """Put frames into the ledger without a connection."""
    writer = running_parts(it)._writer
    from backhaul_agent.arrivals import Arrival
    from backhaul_agent.framer import Frame

    done = asyncio.Semaphore(0)
    for number in range(count):
        body = encode_frame([Point("n", "t", number, float(number))], epoch=0, seq=0)
        content = Frame("n", body, 1, (number, number))
        writer.submit(Arrival(content, 10, True, lambda *_: done.release()))
    for _ in range(count):
        await done.acquire()


def running_parts(it: Bench) -> Any:
    assert it.daemon.parts is not None
    return it.daemon.parts


async def test_a_deleted_stream_is_made_again_and_filled(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with bench(tmp_path, nats_server) as it:
        assert await it.ask("app.a.b", "1") == {"kept": 1}
        await it.drained()
        await it.client.request("$JS.API.STREAM.DELETE.OUT_bulk", b"", timeout=30)
        assert await it.ask("app.a.b", "2") == {"kept": 1}
        await it.until(lambda status: status["lanes"]["bulk"]["last_seq"] == 2)
        await it.drained()
        assert [p.value for p in await points_of(it.client, "OUT_bulk")] == [1.0, 2.0]


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


async def test_watermarks_are_read_garbage_is_not(tmp_path: Path, nats_server: NatsServer) -> None:
    async with bench(tmp_path, nats_server) as it:
        js = it.client.jetstream()
        await js.add_stream(name="IN", subjects=["s.>"], max_msgs_per_subject=1)
        for number in range(3):
            await it.ask("app.a.b", f'{{"value": {number}, "lane": "live"}}')
        last = (await it.drained())["lanes"]["live"]["last_seq"]

        async def say(epoch: int, seq: int) -> None:
            await js.publish("s.watermark.live", b'{"epoch": %d, "seq": %d}' % (epoch, seq))

        await js.publish("s.watermark.live", b"garbage")
        await it.until(lambda status: status["counters"]["downlink_garbage"] == 1)
        await say(41, last)
        await js.publish("s.watermark.bulk", b'{"epoch": 42, "seq": 0}')
        await say(42, last - 1)
        await it.until(lambda status: status["lanes"]["live"]["watermark"] == last - 1)
        await say(42, last - 2)
        await say(42, last)
        status = await it.until(lambda status: status["lanes"]["live"]["watermark"] == last)
        assert status["lanes"]["live"]["outstanding_bytes"] == 0
        assert status["counters"]["downlink_garbage"] == 1


async def test_what_the_hub_lacks_is_never_discarded_and_a_full_ledger_says_so(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    """The hub confirms nothing: OUT fills to half, then the ledger, then publishers are told."""
    small = "[streams]\nout_bulk_bytes_max = 262144\n"
    async with (
        bench(tmp_path, nats_server, extra=small, ledger=REFUSING) as it,
        connect(nats_server.url) as agent,
    ):
        js = it.client.jetstream()
        await js.add_stream(name="IN", subjects=["s.>"], max_msgs_per_subject=1)
        with pytest.raises(RefusedError) as caught:
            await publish_noise(agent, 2000)
        assert caught.value.code == "ledger_full"
        status = await it.until(lambda status: bool(status["lanes"]["bulk"]["waits_for_hub"]))
        last = status["lanes"]["bulk"]["last_seq"]
        stream = (await it.ask("$JS.API.STREAM.INFO.OUT_bulk", b""))["state"]
        assert stream["first_seq"] == OUT_FIRST_SEQ
        assert 100_000 < stream["bytes"] < 200_000
        while status["lanes"]["bulk"]["appended"] < last:
            appended = status["lanes"]["bulk"]["appended"]
            mark = json.dumps({"epoch": 42, "seq": appended}).encode()
            await js.publish("s.watermark.bulk", mark)
            status = await it.until(
                lambda status, seen=appended: status["lanes"]["bulk"]["appended"] > seen  # type: ignore[misc]
            )
        await it.until(lambda status: not status["ledger"]["full"])
        assert await it.ask("app.a.b", "1") == {"kept": 1}


async def publish_noise(agent: Agent, count: int) -> None:
    noise = random.Random(1)
    for number in range(count):
        await agent.publish_batch("n", [Point("n", "t", number, noise.randbytes(3000))])


async def test_a_watermark_beyond_the_ledger_opens_a_new_epoch(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with bench(tmp_path, nats_server) as it:
        js = it.client.jetstream()
        await js.add_stream(name="IN", subjects=["s.>"], max_msgs_per_subject=1)
        await it.ask("app.a.b", "1")
        await it.drained()
        await js.publish("s.watermark.bulk", b'{"epoch": 42, "seq": 9}')
        status = await it.until(lambda status: bool(status["epoch"] == 43))
        assert await it.ask("app.a.b", "2") == {"kept": 1}
        status = await it.drained()
        assert status["last_error"] == ""
        assert status["lanes"]["bulk"]["last_seq"] == 1
        assert [point.value for point in await points_of(it.client, "OUT_bulk")] == [1.0, 2.0]
        (word,) = [e for e in await events_of(it.client) if e.type == "epoch"]
        assert isinstance(word.value, Opaque)
        assert json.loads(word.value.data) == {
            "old": 42, "new": 43, "why": "the hub knows seq 9 of bulk",
            "lanes": {"live": 2, "bulk": 1},
        }  # fmt: skip


async def events_of(client: Client) -> list[Point]:
    return [point for point in await points_of(client, "OUT_live") if not point.node]


async def test_a_restart_that_nobody_vouches_for_goes_on_in_a_new_epoch(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    """What was kept before leaves first, under the old epoch; what was staged waits for the hub."""
    async with bench(tmp_path, nats_server) as it:
        assert await it.ask("app.a.b", "1") == {"kept": 1}
    async with bench(tmp_path, nats_server, drained=False) as it:
        status = await it.until(bool)
        assert (status["epoch"], status["ledger"]["epoch"]) == (42, "waiting")
        assert await it.ask("app.a.b", "2") == {"kept": 1}
        status = await it.drained()
        assert (status["epoch"], status["ledger"]["epoch"]) == (43, "goes_on")
    async with bench(tmp_path, nats_server, drained=False) as it:
        async with hub_that_knows(nats_server.url):
            await it.until(lambda status: bool(status["ledger"]["epoch"] == "goes_on"))
        assert (await it.until(bool))["epoch"] == 43
        assert await it.ask("app.a.b", "3") == {"kept": 1}
        await it.drained()
        found = await read_stream(it.client, "OUT_bulk")
        assert_no_holes(found)
        assert [item.message.epoch for item in found] == [42, 43, 43]


async def test_a_leaf_wiped_in_a_later_epoch_is_given_the_former_ones_again(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    """Nobody notes how far a former epoch was sent: all of it counts as sent, in any stream."""
    async with bench(tmp_path, nats_server) as it:
        assert await it.ask("app.a.b", "1") == {"kept": 1}
    async with bench(tmp_path, nats_server, drained=False) as it:
        await it.until(bool)
        assert await it.ask("app.a.b", "2") == {"kept": 1}
        assert (await it.drained())["epoch"] == 43
        nats_server.stop()
        nats_server.wipe()
        nats_server.start()
        await it.client.close()
        it.client = await patient.connect(nats_server.url)
        await it.drained()
        found = await read_stream(it.client, "OUT_bulk")
        assert [item.message.epoch for item in found] == [42, 43]


async def test_streams_and_consumers_are_as_the_hub_needs_them(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with bench(
        tmp_path, nats_server, extra="[link]\nrate_kbit_s = 20.0\nadaptive = false\n"
    ) as it:
        for lane, subjects, window in (("live", ["p.>", "e.>", "r.>"], 67), ("bulk", ["f.>"], 5)):
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


async def test_systemd_hears_the_life_of_the_daemon(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with bench(tmp_path, nats_server) as it:
        assert it.told.messages == ["READY=1"]
    assert it.told.messages == ["READY=1", "STOPPING=1"]


async def test_shutdown_answers_then_appends_then_closes(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with bench(tmp_path, nats_server) as it:
        answers = await it.client.subscribe("answers")
        for number in range(30):
            await it.client.publish("app.a.b", str(number).encode(), reply="answers")
        # A question comes after what was published; the ping of a flush may overtake it.
        await it.ask("agent.status", b"")
        it.daemon.stop()
        assert [(await answers.next_msg(30)).data for _ in range(30)] == [b'{"kept":1}'] * 30
        while it.daemon.parts is not None:  # noqa: ASYNC110 - the daemon runs in this process
            await asyncio.sleep(0.01)
        assert [p.value for p in await points_of(it.client, "OUT_bulk")] == list(
            map(float, range(30))
        )


def test_a_ledger_that_cannot_be_used_ends_the_process_with_a_hint(tmp_path: Path) -> None:
    agent = AgentProcess(tmp_path, "nats://127.0.0.1:1")
    agent.ledger.write_bytes(b"garbage" * 1000)
    agent.start()
    assert agent.wait() == 1
    assert "move the file away" in agent.log.read_text()


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

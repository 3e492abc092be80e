"""The daemon on a real leaf server: what programs are told, and what the lanes survive."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
from typing import TYPE_CHECKING

import pytest

from backhaul_agent.client import Agent, connect
from backhaul_agent.errors import RefusedError
from backhaul_agent.leaf.streams import OUT_FIRST_SEQ
from backhaul_codec import Opaque, Point, encode_frame
from tests.agent.bench import Bench, bench
from tests.agent.running_parts import events_of
from tests.support.agent_streams import assert_no_holes, points_of, read_stream, watermark
from tests.support.hub_word import hub_that_knows
from tests.support.rig import patient
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.nats_server import NatsServer

pytestmark = pytest.mark.nats


@pytest.fixture(autouse=True)
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backhaul_agent.downlink.reader.POLL_S", 0.05)


REFUSING = 'bytes_max = 1048576\nwhen_full = "refuse"\n'


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


async def test_each_part_reports_in_its_section_of_the_status(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with bench(tmp_path, nats_server) as it:
        status = await it.drained()
    assert list(status) == [
        *("device", "epoch", "machine", "uptime_s", "memory_bytes_max", "conditions", "connects"),
        *("connected", "last_error", "clock", "lanes", "link", "leaf", "ledger", "heads"),
        *("commands", "programs", "artifacts", "counters"),
    ]
    assert {name: set(status[name]) for name in ("link", "ledger", "heads", "counters")} == {
        "link": {
            "budget",
            *("mode", "up", "phase", "visits", "next_visit_s", "last_failure", "shared"),
            *("switched", "rate_kbit_s", "windows", "window_updates"),
            *("pushed", "push_wakes", "half_open"),
        },
        "ledger": {
            *("path", "bytes", "bytes_max", "full", "disk_full", "reserve_held", "staged_points"),
            *("epoch", "former_epochs_owed", "compared_epochs", "suspect_points"),
            *("forgotten_messages", "evicted_messages", "quarantined_rows", "set_aside"),
            *("dictionaries", "dictionaries_unconfirmed", "bundles_packed"),
        },
        "heads": {"count", "damaged_rows", "edges_left_out", "nodes_differing"},
        "counters": {
            *("messages_received", "points_kept", "points_refused_by_storage", "refused"),
            *("commits", "commits_failed", "frames", "downlink_messages", "downlink_garbage"),
        },
    }
    assert set(status["lanes"]["bulk"]) == {
        *("epoch", "state", "last_seq", "ready_seq", "appended", "watermark"),
        *("outstanding_bytes", "waits_for_hub", "foreign_messages", "last_error"),
    }


@pytest.mark.parametrize(
    ("subject", "payload", "code"),
    [
        ("app.a.b", "{", "bad_json"),
        ("app.a.b", "null", "bad_value"),
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
    assert it.daemon.parts is not None
    writer = it.daemon.parts.core.writer
    from backhaul_agent.commit.contents import Frame
    from backhaul_agent.commit.queues import QueuedPublish

    done = asyncio.Semaphore(0)
    for number in range(count):
        body = encode_frame([Point("n", "t", number, float(number))], epoch=0, seq=0)
        content = Frame("n", body, 1, (number, number))
        writer.submit(QueuedPublish(content, 10, True, lambda *_: done.release()))
    for _ in range(count):
        await done.acquire()


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
        await js.publish("s.watermark.live", await watermark(it.client, "live", last - 1))
        await it.until(lambda status: status["lanes"]["live"]["watermark"] == last - 1)
        await say(42, last - 2)
        await say(42, last)  # nothing says that it is this ledger's message
        await js.publish("s.watermark.live", await watermark(it.client, "live", last))
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
            await js.publish("s.watermark.bulk", await watermark(it.client, "bulk", appended))
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
        await until(lambda: it.daemon.parts is None)
        assert [p.value for p in await points_of(it.client, "OUT_bulk")] == list(
            map(float, range(30))
        )

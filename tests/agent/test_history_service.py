"""History asked of a running agent, as local programs ask: from ledger and OUT, in pieces, bounded."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from backhaul_agent.cli.values.history import command
from backhaul_agent.client import connect
from backhaul_agent.errors import NoAgentError, RefusedError
from backhaul_agent.history import service as history_service
from backhaul_agent.history.ledger_source import SLICE_ROWS, LedgerHistory
from backhaul_codec import Point
from tests.agent.bench import Bench, bench
from tests.agent.histories import asked, points_of
from tests.support.agent_streams import watermark

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.nats_server import NatsServer

pytestmark = pytest.mark.nats
SECOND_NS = 10**9


async def forget(it: Bench, lane: str) -> None:
    """Let the hub confirm everything, so that a full ledger forgets."""
    status = await it.drained()
    seq = status["lanes"][lane]["appended"]
    mark = await watermark(it.client, lane, seq)
    await it.client.jetstream().publish(f"s.watermark.{lane}", mark)
    await it.until(lambda status: bool(status["lanes"][lane]["watermark"] == seq))


@pytest.mark.parametrize(
    ("lane", "streams"), [("bulk", ""), ("n_n", '[streams]\nper = "node"\nnodes = ["n"]\n')]
)
async def test_everything_a_vehicle_still_has_comes_once_in_order(
    tmp_path: Path,
    nats_server: NatsServer,
    monkeypatch: pytest.MonkeyPatch,
    lane: str,
    streams: str,
) -> None:
    """What is staged, framed, live, and what the ledger has forgotten but OUT still has."""
    monkeypatch.setattr("backhaul_agent.history.stream_source.BATCH", 7)
    monkeypatch.setattr("backhaul_agent.downlink.reader.POLL_S", 0.05)
    noise = random.Random(1)
    async with (
        bench(tmp_path, nats_server, extra=streams, ledger="bytes_max = 1048576\n") as it,
        connect(nats_server.url) as agent,
    ):
        await it.client.jetstream().add_stream(name="IN", subjects=["s.>"], max_msgs_per_subject=1)
        expected = []
        for number in range(600):
            value = noise.randbytes(3000)
            await agent.publish_batch("n", [Point("n", "t", number, value)])
            expected.append(number)
            if number % 100 == 99:
                await forget(it, lane)
        await agent.publish("n", "t", "live", time=600, lane="live")
        await agent.publish("n", "t", 601.5, time=601)
        status = await it.until(lambda status: status["ledger"]["forgotten_messages"] > 100)
        assert status["ledger"]["evicted_messages"] == 0
        found = await points_of(agent, "n.t")
        assert [time for time, _ in found] == [*expected, 600, 601]
        assert found[-2:] == [(600, "live"), (601, 601.5)]
        some = await points_of(agent, "n.t", from_ns=5, to_ns=11, limit=4)
        assert [time for time, _ in some] == [5, 6, 7, 8]
        end = json.loads((await asked(it, {"node": "n", "type": "t", "limit": 1000}))[-1])
        assert end["end"] is True
        assert end["points"] == 602
        assert end["next"] is None
        assert end["from_out"] >= 100
        assert end["unreadable"] == 0


async def test_an_answer_is_bounded_and_the_next_goes_on(
    tmp_path: Path, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_service, "ANSWER_BYTES_MAX", 4000)
    async with bench(tmp_path, nats_server) as it, connect(nats_server.url) as agent:
        for number in range(50):
            await agent.publish_batch("n", [Point("n", "t", number, "x" * 900)] * 12)
        (*_, last) = await asked(it, {"node": "n", "type": "t"})
        assert 0 < json.loads(last)["next"] < 50
        found = await points_of(agent, "n.t")
        assert [time for time, _ in found] == [number for number in range(50) for _ in range(12)]


async def test_mistakes_and_a_crowd_are_answered(
    tmp_path: Path, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(tmp_path, nats_server) as it, connect(nats_server.url) as agent:
        (only,) = await asked(it, b"{")
        assert json.loads(only)["error"]["code"] == "bad_json"
        with pytest.raises(RefusedError) as caught:
            await points_of(agent, "n.t", from_ns=1 << 70)
        assert caught.value.code == "bad_time"
        assert await points_of(agent, "n.t") == []
        held = asyncio.Event()
        read = LedgerHistory.runs

        async def slow(self: Any) -> Any:
            await held.wait()
            async for found in read(self):
                yield found

        monkeypatch.setattr(LedgerHistory, "runs", slow)
        crowd = [asyncio.create_task(points_of(agent, "n.t")) for _ in range(12)]
        done, _ = await asyncio.wait(crowd, return_when=asyncio.FIRST_COMPLETED, timeout=60)
        assert isinstance(next(iter(done)).exception(), RefusedError)
        held.set()
        results = await asyncio.gather(*crowd, return_exceptions=True)
        refused = [each for each in results if isinstance(each, RefusedError)]
        assert {each.code for each in refused} == {"busy"}
        assert results.count([]) in (8, 9)  # one at a time, eight wait


async def test_publishers_are_served_while_history_is_read(
    tmp_path: Path, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing a publisher needs is held, and the event loop turns after every few messages."""
    begun, served = asyncio.Event(), asyncio.Event()
    turn = 0
    messages_of_turn: Counter[int] = Counter()
    read = LedgerHistory.runs

    async def watched(self: Any) -> Any:
        async for found in read(self):
            yield found
            messages_of_turn[turn] += 1
            if not served.is_set():
                begun.set()
                await served.wait()

    async with bench(tmp_path, nats_server) as it, connect(nats_server.url) as agent:
        for start in range(0, 8_000, 20):
            await agent.publish_batch(
                "n", [Point("n", "t", start + at, float(at)) for at in range(20)]
            )
        monkeypatch.setattr(LedgerHistory, "runs", watched)
        reading = asyncio.create_task(points_of(agent, "n.t"))
        await begun.wait()
        for _ in range(3):
            assert await it.ask("app.m.x", "1") == {"kept": 1}
        served.set()
        while not reading.done():
            turn += 1
            await asyncio.sleep(0)
        assert len(await reading) == 8_000
        assert messages_of_turn.total() > 10 * SLICE_ROWS
        assert max(messages_of_turn.values()) <= SLICE_ROWS + 1


async def test_the_command_prints_points(tmp_path: Path, nats_server: NatsServer) -> None:
    async with bench(tmp_path, nats_server), connect(nats_server.url) as agent:
        await agent.publish("n", "t", 1.5, time=SECOND_NS)
        await agent.publish("n", "t", 'a "b", c', key="k", time=2 * SECOND_NS)
        await agent.publish("n", "t", float("nan"), time=3 * SECOND_NS)
        runs = {}
        for form in ("", "--json", "--csv"):
            for series in ("n.t", "n.t.k"):
                words = [series, "--from", "0", "--url", nats_server.url, *filter(None, [form])]
                runs[series, form] = await asyncio.to_thread(CliRunner().invoke, command, words)
        assert {run.exit_code for run in runs.values()} == {0}
        assert runs["n.t", ""].output.splitlines() == [
            "1970-01-01T00:00:01.000Z  1.5", "1970-01-01T00:00:03.000Z  NaN",
        ]  # fmt: skip
        assert [json.loads(line) for line in runs["n.t", "--json"].output.splitlines()] == [
            {"time": SECOND_NS, "value": 1.5, "dtype": "float64"},
            {"time": 3 * SECOND_NS, "value": "NaN", "dtype": "float64"},
        ]
        assert runs["n.t.k", "--csv"].output.splitlines() == [
            "time_ns,time,value", '2000000000,1970-01-01T00:00:02.000Z,"a ""b"", c"',
        ]  # fmt: skip
        none = ["n.t", "--from", "1h", "--url", nats_server.url]
        empty = await asyncio.to_thread(CliRunner().invoke, command, none)
        assert empty.exit_code == 1
        assert empty.output == "no such points\n"


async def test_without_an_agent_it_says_so(nats_server: NatsServer) -> None:
    async with connect(nats_server.url) as agent:
        with pytest.raises(NoAgentError):
            await points_of(agent, "n.t")

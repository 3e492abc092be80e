"""The technician's page of a running agent, asked as browsers and attackers ask, over real HTTP."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.client import connect
from backhaul_agent.ledger.ledger import Ledger
from backhaul_agent.page import web
from backhaul_agent.page.technician import FILES
from backhaul_runtime.clock import SystemClock
from tests.agent.bench import bench
from tests.agent.paged import Paged, paged
from tests.support.needed import lacking

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.nats_server import NatsServer

pytestmark = pytest.mark.nats
HTML = "<img src=x onerror=alert(1)>"


async def test_values_come_as_they_are_published_and_from_before(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    units = '[page.units]\nsoc = "%"\n'
    async with paged(tmp_path, nats_server, units) as it, connect(nats_server.url) as agent:
        await agent.publish("battery", "soc", 81.2)
        await agent.publish(HTML, "text", HTML)
        await agent.publish("mode", "state", "auto", lane="live")
        await it.bench.drained()
        await agent.publish("gps", "lat", 48.1)
        await it.log_in()
        first = await it.ask("look")
        seen = {(each["node"], each["type"]): each for each in first["values"]}
        assert seen["battery", "soc"]["value"] == 81.2
        assert seen["battery", "soc"]["unit"] == "%"
        assert seen[HTML, "text"]["value"] == HTML
        assert seen["mode", "state"]["value"] == "auto"
        assert seen["gps", "lat"]["value"] == 48.1
        assert first["status"]["device"] == "VID-001"
        async with agent.batch("battery") as batch:
            for number in range(300):  # a frame, that passes through as it is
                batch.add("soc", float(number))
        again = await it.ask("look", since=first["version"])
        assert [(each["type"], each["value"]) for each in again["values"]] == [("soc", 299.0)]
        assert (await it.ask("look", since=again["version"]))["values"] == []


async def test_history_is_the_peaks_of_what_the_vehicle_has(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with paged(tmp_path, nats_server) as it, connect(nats_server.url) as agent:
        now_ns = SystemClock().now_ns()
        async with agent.batch("pump") as batch:
            for number in range(2000):
                value = 1e6 if number == 777 else float(number % 7)
                batch.add("flow", value, time=now_ns - (2000 - number) * 10**9)
        await it.log_in()
        stretch = {"from_ns": now_ns - 3600 * 10**9, "to_ns": now_ns, "points_max": 100}
        told = await it.ask("history", node="pump", type="flow", **stretch)
        assert (max(told["max"]), min(told["min"]), sum(told["n"])) == (1e6, 0.0, 2000)
        assert len(told["t_us"]) <= 100
        assert told["notes"] == []
        wrong = await it.ask("history", node="pump", type="flow", from_ns=2, to_ns=1)
        assert wrong["error"]["code"] == "bad_time"
        assert "error" in await it.ask("history", node="pump")


async def test_a_test_publish_is_kept_by_the_way_of_programs_or_refused_with_the_reason(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with paged(tmp_path, nats_server) as it:
        await it.log_in()
        told = await it.ask("publish", type="page", value=7.5)
        assert told == {"kept": 1, "subject": "app.test.page"}
        values = (await it.ask("look"))["values"]
        assert [(each["node"], each["value"]) for each in values] == [("test", 7.5)]
        refused = await it.ask("publish", type="page", value="x" * 1000 + "y")
        assert "1000" in refused["error"]["message"]
        for name in ({"node": "battery"}, {"type": ""}, {"lane": "n_x"}):
            body = {"type": "page", "value": 1.0, **name}
            assert "error" in await it.ask("publish", **body)
        # Whatever the type is made of, it stays one below `test`.
        told = await it.ask("publish", type="a.b>c *", value="on", lane="live")
        assert told["subject"] == "app.test.a%2Eb%3Ec%20%2A"


async def test_what_waits_what_ran_and_events_are_told_to_the_page_and_to_the_agents_login(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with paged(tmp_path, nats_server) as it, connect(nats_server.url) as agent:
        hour_ns = 3600 * 10**9
        await agent.publish("pump", "flow", 1.0, time=5 * hour_ns + 1)
        await agent.publish("pump", "flow", 2.0, time=7 * hour_ns)
        await agent.event("armed", previous="disarmed", reason=HTML, data={"by": HTML})
        await it.bench.drained()
        await it.log_in()
        waiting = await it.ask("waiting")
        lanes = {each["lane"]: each for each in waiting["lanes"]}
        assert lanes["bulk"]["messages"] >= 1
        assert lanes["bulk"]["oldest_ns"] == 5 * hour_ns + 1
        assert lanes["bulk"]["bytes"] > 0
        hours = {each["from_ns"] // hour_ns for each in waiting["hours"]}
        assert {5, 7} <= hours
        assert waiting["given_up"] == []
        events = (await it.ask("events"))["events"]
        assert [(each["kind"], each["by"], each["reason"]) for each in events if each["by"] == "program"] == [
            ("armed", "program", HTML)
        ]  # fmt: skip
        assert await it.ask("commands") == {"commands": []}
        for name in ("commands", "events", "waiting"):
            assert await it.bench.ask(f"agent.{name}", b"") == await it.ask(name)
        assert "error" in await it.bench.ask("agent.events", b'{"limit": 0}')
        assert (await it.bench.ask("agent.events", '{"limit": 1}'))["events"] == events[:1]


async def test_without_the_leaf_server_the_page_answers_and_says_so(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with paged(tmp_path, nats_server) as it, connect(nats_server.url) as agent:
        now_ns = SystemClock().now_ns()
        await agent.publish("pump", "flow", 1.0, time=now_ns - 10**9)
        await it.log_in()
        await it.ask("look")
        nats_server.stop()
        await until_async(it)
        told = await it.ask("publish", type="page", value=1.0)
        assert told["error"]["code"] == "no_leaf"
        stretch = {"from_ns": now_ns - 10**10, "to_ns": now_ns}
        told = await it.ask("history", node="pump", type="flow", **stretch)
        assert told["max"] == [1.0]
        assert "the leaf server does not answer" in told["notes"][0]
        assert (await it.ask("waiting"))["lanes"]
        nats_server.start()


async def until_async(it: Paged) -> None:
    """Wait until the page says that the leaf server is away."""
    async with asyncio.timeout(60):
        while (await it.ask("look"))["status"]["connected"]:  # noqa: ASYNC110 - it is asked
            await asyncio.sleep(0.02)


async def test_a_first_look_that_took_too_long_is_refused_and_the_next_one_has_all(
    tmp_path: Path, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with paged(tmp_path, nats_server) as it, connect(nats_server.url) as agent:
        await agent.publish("battery", "soc", 81.2)
        await it.bench.drained()
        await it.log_in()
        go_on, query = asyncio.Event(), Ledger.query

        async def slow(*asked: Any) -> Any:
            await go_on.wait()
            return await query(*asked)

        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "query", slow)
            patch.setattr(web, "ANSWER_S_MAX", 0.05)
            assert await it.post("ask/look", {}) == (503, None)
        go_on.set()
        values = (await it.ask("look"))["values"]
        assert [(each["node"], each["value"]) for each in values] == [("battery", 81.2)]


async def test_the_page_is_served_packed_and_plain_and_is_small(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    if not (FILES / "built.json").exists():
        lacking("the page is not built: tools/page says why")
    assert json.loads((FILES / "built.json").read_text())["gzip_bytes"] < 80_000
    async with paged(tmp_path, nats_server) as it:
        found = []
        for coding in ("gzip", "identity"):
            headers = {"Accept-Encoding": coding}
            async with it.http.get(f"{it.url}/", headers=headers) as answer:
                assert answer.status == 200
                assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
                assert answer.headers.get("Content-Encoding", "identity") == coding
                found.append(await answer.text())
        assert found[0] == found[1]
        names = re.findall(r'(?:src|href)="([^"]+)"', found[0])
        assert len(names) == 3
        for name in names:
            async with it.http.get(f"{it.url}/{name}") as answer:
                assert answer.status == 200, name
                assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_an_address_that_is_taken_ends_no_agent(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    server = await asyncio.start_server(lambda _r, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with bench(
            tmp_path, nats_server, extra=f'[page]\nlisten = "127.0.0.1:{port}"\n'
        ) as it:
            assert (await it.ask("agent.status", b""))["device"] == "VID-001"
            assert not (tmp_path / "page.json").exists()

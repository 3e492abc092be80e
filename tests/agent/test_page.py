"""The technician's page of a running agent, asked as browsers and attackers ask, over real HTTP."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from click.testing import CliRunner

from backhaul_agent.cli.main import cli
from backhaul_agent.client import connect
from backhaul_agent.page.gate import FREE_TRIES
from backhaul_agent.page.web import BODY_BYTES_MAX
from backhaul_runtime.clock import SystemClock
from tests.agent.bench import Bench, bench
from tests.support.rig.ports import free_port
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.nats_server import NatsServer

pytestmark = pytest.mark.nats
HTML = "<img src=x onerror=alert(1)>"


class Paged:
    """A daemon with its page, and a browser's side of HTTP."""

    def __init__(self, it: Bench, http: aiohttp.ClientSession, port: int, directory: Path) -> None:
        self.bench, self.http = it, http
        self.url = f"http://127.0.0.1:{port}"
        self.directory = directory
        self.token = ""

    def code(self) -> str:
        return str(json.loads((self.directory / "page.json").read_text())["code"])

    async def post(
        self, path: str, said: Any, *, token: str | None = None, **headers: str
    ) -> tuple[int, Any]:
        sent = {"Origin": self.url, "Authorization": f"Bearer {token or self.token}", **headers}
        async with self.http.post(f"{self.url}/{path}", json=said, headers=sent) as answer:
            body = await answer.read()
            return answer.status, json.loads(body) if body else None

    async def log_in(self) -> None:
        status, told = await self.post("login", {"code": self.code()})
        assert (status, told["device"]) == (200, "VID-001")
        self.token = told["token"]

    async def ask(self, name: str, **question: Any) -> Any:
        status, told = await self.post(f"ask/{name}", question)
        assert status == 200, told
        return told


@asynccontextmanager
async def paged(
    path: Path, server: NatsServer, extra: str = "", **options: Any
) -> AsyncIterator[Paged]:
    port = free_port()
    settings = f'[page]\nlisten = "127.0.0.1:{port}"\n{extra}'
    async with (
        bench(path, server, extra=settings, **options) as it,
        aiohttp.ClientSession() as http,
    ):
        await until(lambda: (path / "page.json").exists(), "the page is served")
        yield Paged(it, http, port, path)


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
        while (await it.ask("look"))["status"]["connected"]:
            await asyncio.sleep(0.02)


async def test_nobody_gets_in_without_the_code_and_the_command_shows_it(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with paged(tmp_path, nats_server) as it:
        file = tmp_path / "page.json"
        assert file.stat().st_mode & 0o777 == 0o600
        for token in ("", "x" * 43):
            status, _ = await it.post("ask/look", {}, token=token)
            assert status == 401
        for wait_s in (0.0,) * (FREE_TRIES - 1) + (1.0,):
            status, told = await it.post("login", {"code": "WRNG-WRNG"})
            assert (status, told["wait_s"]) == (403, wait_s)
        status, told = await it.post("login", {"code": it.code()})
        assert status == 429
        assert 0 < told["wait_s"] <= 1
        toml = tmp_path / "agent.toml"
        toml.write_text(
            '[device]\nid = "VID-001"\ntoken = "tok1"\n[ledger]\npath = "ledger.db"\n'
            '[page]\nlisten = "127.0.0.1:8480"\n'
        )
        shown = CliRunner().invoke(cli, ["page", "--config", str(toml)], catch_exceptions=False)
        assert shown.exit_code == 0
        assert it.code() in shown.output
        assert f"{it.url}/" in shown.output
        shown = CliRunner().invoke(cli, ["page", "--json", "--config", str(toml)])
        assert json.loads(shown.output)["link"] == f"{it.url}/#{it.code()}"
        async with asyncio.timeout(30):
            while (await it.post("login", {"code": it.code()}))[0] == 429:
                await asyncio.sleep(0.05)
        await it.log_in()
        await it.ask("look")
        await it.post("logout", {})
        assert (await it.post("ask/look", {}))[0] == 401
    assert not file.exists(), "with the agent its code ends"
    shown = CliRunner().invoke(cli, ["page", "--config", str(toml)])
    assert "no agent here serves a page" in str(shown.exception)


async def test_what_is_no_request_of_the_page_is_refused(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with paged(tmp_path, nats_server, 'names = ["van-7.local"]\n') as it:
        await it.log_in()
        for headers in (
            {"Origin": "http://evil.example"},
            {"Host": "evil.example", "Origin": "http://evil.example"},
            {"Origin": "null"},
        ):
            assert (await it.post("ask/look", {}, **headers))[0] == 403
            assert (await it.post("login", {"code": it.code()}, **headers))[0] == 403
        known = {"Host": "van-7.local", "Origin": "http://van-7.local"}
        assert (await it.post("ask/look", {}, **known))[0] == 200
        for path, status in (
            *(("ask/set", 404), ("ask/", 404), ("look", 404), ("ask/look/x", 404)),
            *(("../etc/passwd", 404), ("index.html", 404), ("ask/__init__", 404)),
        ):
            assert (await it.post(path, {}))[0] == status, path
        assert (await it.post("ask/look", {"x": "y" * BODY_BYTES_MAX}))[0] == 413
        plain = {"Content-Type": "text/plain"}
        assert (await it.post("ask/look", {}, **plain))[0] == 415
        for method in ("OPTIONS", "PUT", "DELETE"):
            async with it.http.request(method, f"{it.url}/ask/look") as answer:
                assert answer.status in (403, 405)
                assert "Access-Control-Allow-Origin" not in answer.headers
        for path in ("page.json", "..%2f..%2fagent.toml", "/etc/passwd", "index.html.gz"):
            async with it.http.get(f"{it.url}/{path}") as answer:
                assert answer.status == 404
                policy = answer.headers["Content-Security-Policy"]
        assert "connect-src 'self';" in policy
        assert "'unsafe" not in policy
        # And by hand, what no client says.
        for line in ("GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"):
            reader, writer = await asyncio.open_connection(*it.url[7:].split(":"))
            writer.write(line.encode())
            assert b" 403 " in (await reader.read()).partition(b"\r\n")[0]
            writer.close()
        for length in ("-1", "9" * 40, "x", "٣"):
            reader, writer = await asyncio.open_connection(*it.url[7:].split(":"))
            head = f"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
            writer.write(head.encode())
            assert b" 411 " in (await reader.read()).partition(b"\r\n")[0]
            writer.close()


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

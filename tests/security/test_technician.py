"""The technician's page attacked: over the network, from a page of elsewhere in a browser beside it, by a program on the vehicle."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from backhaul_agent.cli.main import cli
from backhaul_agent.page.gate import FREE_TRIES
from backhaul_agent.page.web import BODY_BYTES_MAX
from backhaul_runtime.scrape_server import OPEN_MAX
from tests.agent.paged import paged

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.nats_server import NatsServer

pytestmark = pytest.mark.nats


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
            while (await it.post("login", {"code": it.code()}))[0] == 429:  # noqa: ASYNC110
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
        policy = ""
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


async def test_connections_that_say_nothing_hold_up_neither_page_nor_agent(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with paged(tmp_path, nats_server) as it:
        await it.log_in()
        host, port = it.url.removeprefix("http://").split(":")
        silent = [await asyncio.open_connection(host, port) for _ in range(4 * OPEN_MAX)]
        for _, writer in silent:
            writer.write(b"POST /ask/look HTTP/1.1\r\nHost: ")
        assert (await it.ask("look"))["status"]["connected"]
        assert (await it.bench.ask("agent.status", b""))["device"] == "VID-001"
        for _, writer in silent:
            writer.close()

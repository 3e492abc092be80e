"""An agent in this process that serves its page, and a browser's side of HTTP."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp

from tests.agent.bench import Bench, bench
from tests.support.rig.ports import free_port
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.nats_server import NatsServer


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

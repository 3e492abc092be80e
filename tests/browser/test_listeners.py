"""Where browsers reach the hub: over wss, through a proxy that ends TLS, and at each server of a cluster."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner
from playwright.async_api import expect

from backhaul_hub.cli.main import cli
from tests.integration.tls_rig import TlsRig
from tests.support.rig.cluster import NAMES, ClusterRig
from tests.support.rig.ports import free_port
from tests.support.run_here import run_here
from tests.support.waiting import until

from .looking import looking
from .nginx import proxy
from .park import PageHub

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from playwright.async_api import Browser

    from tests.support.rig.parts import HubRig

    from .looking import Looking

pytestmark = [pytest.mark.nats, pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


class TlsPageHub(TlsRig, PageHub):
    """A hub that speaks TLS, and has a page."""


class PageCluster(ClusterRig):
    """Three servers, each with a listener for browsers."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, run=run_here)
        self.page_port, self.websocket_ports = free_port(), [free_port() for _ in NAMES]

    async def init(self, *words: str) -> None:
        ports = ("--page-port", str(self.page_port), "--websocket-port", str(free_port()))
        await super().init(*ports, *words)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.page_port}"


@asynccontextmanager
async def running(hub: PageHub | PageCluster) -> AsyncIterator[None]:
    try:
        await hub.start()
        await until(lambda: is_served(hub.page_port), "the page is served")
        yield
    finally:
        await hub.stop()


def is_served(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


async def settle(hub: HubRig, settings: dict[str, str], *words: str) -> None:
    """Change [page], and write the listener anew, as an operator does."""
    path = hub.directory / "hub.toml"
    text = path.read_text()
    for key, value in settings.items():
        text = re.sub(rf"^{key} = .*\n", "", text, flags=re.MULTILINE) if key != "url" else text
        text = text.replace("[page]\n", f"[page]\n{key} = {json.dumps(value)}\n")
    path.write_text(text)
    await operator(hub, "page-listener", *words)


async def operator(hub: HubRig, *words: str) -> str:
    """Run a command of the hub's, and return what it printed."""
    command = [*words, "--dir", str(hub.directory)]
    done = await asyncio.to_thread(CliRunner().invoke, cli, command)
    assert done.exit_code == 0, f"{done.output} {done.exception}"
    return done.stdout


async def log_in(hub: HubRig, one: Looking, sockets: list[str]) -> None:
    one.page.on("websocket", lambda opened: sockets.append(opened.url))
    await operator(hub, "user", "add", "olga", "--group", "fleet")
    link = await operator(hub, "user", "link", "olga", "--json")
    await one.page.goto(json.loads(link)["url"])
    await shows_the_hub(one)


async def shows_the_hub(one: Looking) -> None:
    await expect(one.page.locator(".link-state")).to_have_text("live")
    await one.page.evaluate("location.hash = '#/system'")
    await expect(one.page.get_by_role("cell", name="UP_00", exact=True).first).to_be_visible()


def hosts(sockets: Sequence[str]) -> set[str]:
    return {
        f"{each.scheme}://{each.netloc}{each.path.rstrip('/')}" for each in map(urlsplit, sockets)
    }


async def test_a_browser_comes_over_wss(chromium: Browser, tmp_path: Path) -> None:
    hub = TlsPageHub(tmp_path / "hub", run=run_here)
    await hub.init()
    listener = f"wss://127.0.0.1:{hub.websocket_port}"
    await settle(hub, {"websocket": listener})
    sockets: list[str] = []
    async with running(hub), looking(chromium, ignore_https_errors=True) as one:
        await log_in(hub, one, sockets)
        assert hosts(sockets) == {listener}
        assert one.errors == []
        # Whoever does not believe the certificate says nothing there.
        async with looking(chromium) as other:
            await other.page.goto(hub.url)
            refused = await other.page.evaluate(
                "url => new Promise(done => { const socket = new WebSocket(url);"
                " socket.onopen = () => done('open'); socket.onerror = () => done('refused') })",
                listener,
            )
            assert refused == "refused"


async def test_a_proxy_ends_tls_for_page_and_websocket(chromium: Browser, tmp_path: Path) -> None:
    hub = TlsPageHub(tmp_path / "hub", run=run_here)
    await hub.init()
    port = free_port()
    url = f"https://127.0.0.1:{port}"
    words = ("--no-tls", "--host", "127.0.0.1", "--port", str(hub.websocket_port))
    await settle(hub, {"url": url, "websocket": f"wss://127.0.0.1:{port}/nats"}, *words)
    sockets: list[str] = []
    async with (
        running(hub),
        proxy(
            tmp_path / "nginx",
            port=port,
            page=hub.page_port,
            websocket=hub.websocket_port,
            certificate=hub.directory / "tls" / "server.pem",
        ),
        looking(chromium, ignore_https_errors=True) as one,
    ):
        await log_in(hub, one, sockets)
        assert one.page.url.startswith(url)
        assert hosts(sockets) == {f"wss://127.0.0.1:{port}/nats"}
        assert one.hosts == {f"127.0.0.1:{port}"}
        assert one.errors == []
        # Where it would be by itself, the listener knows it is not the page that comes.
        async with looking(chromium) as other:
            await other.page.goto(hub.url)
            await expect(other.page.get_by_label("credentials file")).to_be_visible()


async def test_a_browser_goes_on_at_another_server_of_the_cluster(
    chromium: Browser, tmp_path: Path
) -> None:
    hub = PageCluster(tmp_path / "hub")
    await hub.init()
    listeners = [f"ws://127.0.0.1:{port}" for port in hub.websocket_ports]
    await settle(hub, {"websocket": ",".join(listeners)})
    for name, port in zip(NAMES, hub.websocket_ports, strict=True):
        # On machines of their own all have the same port.
        conf = hub.directory / "servers" / name / "websocket.conf"
        conf.write_text(
            conf.read_text().replace(str(hub.websocket_ports[0]), str(port)), encoding="utf-8"
        )
    sockets: list[str] = []
    async with running(hub), looking(chromium) as one:
        await log_in(hub, one, sockets)
        at = listeners.index(next(iter(hosts(sockets[-1:]))))
        await one.page.evaluate("window.kept = 1")
        await hub.servers[NAMES[at]].stop()
        await expect(one.page.locator(".link-state")).not_to_have_text("live")
        await shows_the_hub(one)
        assert next(iter(hosts(sockets[-1:]))) in {*listeners} - {listeners[at]}
        assert await one.page.evaluate("window.kept") == 1, "it was not loaded again"

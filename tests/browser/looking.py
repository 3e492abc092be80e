"""Somebody with a browser."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from playwright.async_api import expect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Browser, Page

    from .park import Park

WAIT_MS = 60_000
expect.set_options(timeout=WAIT_MS)


class Looking:
    """One window, and what it did."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        """What the page threw, and what its policy refused."""
        self.hosts: set[str] = set()
        """Whom it has asked."""
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._console)
        page.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))
        page.on("websocket", lambda socket: self.hosts.add(urlsplit(socket.url).netloc))

    def _console(self, message: Any) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    async def log_in(self, park: Park, name: str, route: str = "") -> None:
        await self.page.goto(await park.link(name))
        await expect(self.page.locator(".link-state")).to_have_text("live")
        if route:
            await self.page.evaluate("hash => { location.hash = hash }", route)


@asynccontextmanager
async def looking(browser: Browser, **options: Any) -> AsyncIterator[Looking]:
    """Open a window of its own, with nothing kept in it; close it at the end."""
    context = await browser.new_context(**options)
    context.set_default_timeout(WAIT_MS)
    try:
        yield Looking(await context.new_page())
    finally:
        await context.close()

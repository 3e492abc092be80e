"""The machine's Chromium, and a hub with its page: one for each file of tests."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest_asyncio
from playwright.async_api import async_playwright

from backhaul_hub.page.server import FILES
from tests.support.needed import lacking

from .park import Park, park

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest
    from playwright.async_api import Browser


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def chromium() -> AsyncIterator[Browser]:
    program = os.environ.get("BACKHAUL_CHROMIUM") or shutil.which("chromium")
    if program is None:
        lacking("no chromium on PATH: sudo apt install chromium (tools/system-packages)")
    if not (FILES / "built.json").exists():
        lacking("the page is not built: tools/page says why")
    # Chromium refuses its sandbox to root, as tests in a container are.
    words = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=words)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def parked(
    chromium: Browser, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Park]:
    assert chromium.is_connected()
    async with park(tmp_path_factory.mktemp("park")) as some:
        yield some

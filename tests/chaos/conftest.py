"""A toxiproxy server for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos.link import NoToxiproxyError, ProxyServer, server_binary
from tests.support.needed import lacking

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
def toxiproxy() -> None:
    """Have what a run's links go through. Where there is none the test is skipped; in CI it fails (`needed.py`)."""
    try:
        server_binary()
    except NoToxiproxyError as error:
        lacking(str(error))


@pytest.fixture
async def proxies(toxiproxy: None, tmp_path: Path) -> AsyncIterator[ProxyServer]:
    """A running toxiproxy."""
    async with ProxyServer(tmp_path) as server:
        yield server

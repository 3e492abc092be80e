"""Conditions, waited for."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
from nats.errors import Error as NatsError

from .conftest import DEADLINE_S, World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.aio.client import Client


HEALTH = """
[health]
interval_s = 0.1
patience = 0
consumer_lag_max = 15
ack_pending_max = 5
reader_lag_max = 5
quarantine_shown_s = 3.0
"""


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A running hub that shows conditions at once, with low limits, and without vehicles."""
    async with AsyncExitStack() as stack:
        world = World(tmp_path, stack)
        await world.hub.init()
        path = world.hub.directory / "hub.toml"
        text = re.sub(r"\n\[quarantine\]\n[^\[]*", "\n", path.read_text())
        path.write_text(f"{text}\n[quarantine]\nbytes_max = {1 << 20}\n{HEALTH}")
        stack.push_async_callback(world.hub.stop)
        await world.hub.start()
        yield world


async def status(client: Client) -> dict[str, Any]:
    """Ask as `backhaul-hub status --json` does, without the time that a program takes to start."""
    answer: dict[str, Any] = json.loads((await client.request("hub.status", b"")).data)
    return answer


async def until_shown(
    world: World, code: str, *, about: str = "", detail: str = "", shown: bool = True
) -> dict[str, Any]:
    """Ask until a condition of that code and these parts is shown (or none is any more); return it."""
    end_s = asyncio.get_running_loop().time() + DEADLINE_S
    answer: dict[str, Any] = {}
    async with world.hub.connection(max_reconnect_attempts=-1) as client:
        while asyncio.get_running_loop().time() < end_s:
            with contextlib.suppress(NatsError):
                answer = await status(client)
                found = [
                    each
                    for each in answer["conditions"]
                    if each["code"] == code and about in each["about"] and detail in each["detail"]
                ]
                if answer["looked_ns"] and bool(found) is shown:
                    return found[0] if found else {}
            await asyncio.sleep(0.05)
    pytest.fail(f"{code} never became {shown}: {json.dumps(answer, indent=1)}")

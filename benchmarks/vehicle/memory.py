"""Measure the memory of an agent: at rest, after many points, and after a long backlog.

Resident set and proportional set (pages shared with other processes counted by share) of the
agent's process, and the largest resident set of the whole run, as Linux accounts for them. Beside
it what a vehicle runs anyway (its leaf server) and what no Python program can go below. The technician's page is
open meanwhile, and asks as it does in a browser.

Of this environment's packages nats-py and others load some that no vehicle has, such as aiohttp: 18 MB. AGENT_PYTHON names
the Python of an environment that has those of requirements/agent.txt alone; the bound is for that.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import psutil  # type: ignore[import-untyped]

from backhaul_agent.client import Agent, connect
from benchmarks import scratch
from benchmarks.errors import BenchmarkError
from benchmarks.figures import Figure, at_most, report
from tests.support.backlog import publish_frames, require_all_frames
from tests.support.numbered_points import FIRST_NS, NODE, SERIES, points
from tests.support.rig.parts import DeviceRig, Part
from tests.support.rig.ports import free_port
from tests.support.rig.vehicle import vehicle

AIM = at_most(45)
_CHUNK_POINTS = 50_000
_TIMEOUT_S = 900.0
_LOOK_S = 0.7
_CHART_LOOKS = 20
"""History of a series is asked for each so many looks, and so is what waits."""
_HOUR_NS = 3600 * 10**9


def run(*, quick: bool) -> dict[str, object]:
    """Load an agent, print the table, and return it."""
    with scratch.directory("memory") as directory:
        figures = asyncio.run(
            _measure(
                directory,
                count=200_000 if quick else 1_000_000,
                frames=20_000 if quick else 200_000,
            )
        )
    return report("memory: megabytes (10^6) of the agent, and of what runs beside it", figures)


async def _measure(directory: Path, *, count: int, frames: int) -> list[Figure]:
    figures: list[Figure] = []
    async with (
        vehicle(directory) as rig,
        rig.device.connection() as leaf,
        rig.hub.connection() as hub,
        _page(rig.device),
    ):
        pid = rig.device.agent.pid
        await rig.sourced(hub)
        figures += _figures("agent, started", pid, aimed=True)
        async with connect(rig.device.url) as agent:
            await _publish(agent, count)
        status = await rig.appended(leaf)
        await rig.proved(hub, status["lanes"]["bulk"]["last_seq"], _TIMEOUT_S)
        figures += _figures(f"agent, after {count:,} points", pid, aimed=True)
        await rig.relay.cut()
        await publish_frames(leaf, frames)
        figures += _figures(f"agent, {frames:,} frames waiting", pid, aimed=True)
        await rig.relay.heal()
        status = await rig.appended(leaf, _TIMEOUT_S)
        last_seq = status["lanes"]["bulk"]["last_seq"]
        await rig.proved(hub, last_seq, _TIMEOUT_S)
        figures += _figures("agent, backlog drained", pid, aimed=True)
        figures.append(Figure("agent, peak: resident", _peak_bytes(pid) / 1e6, "MB", AIM))
        figures += _figures("leaf server, then", rig.device.leaf.pid)
        await require_all_frames(hub, last_seq)
    return figures + await _idle_interpreter(directory)


@asynccontextmanager
async def _page(device: DeviceRig) -> AsyncIterator[None]:
    """Start the agent again with a page, and have a technician look at it meanwhile.

    Raises:
        BenchmarkError: the page was not answered.
    """
    url = f"http://127.0.0.1:{free_port()}"
    await device.agent.stop()
    with device.agent_toml.open("a") as toml:
        toml.write(f'\n[page]\nlisten = "{url.removeprefix("http://")}"\n')
    if python := os.environ.get("AGENT_PYTHON"):
        device.agent.before = (python,)
    await device.start_agent()
    code_file = next(device.agent_toml.parent.rglob("page.json"))
    async with aiohttp.ClientSession(headers={"Origin": url}) as http:

        async def ask(path: str, **said: Any) -> dict[str, Any]:
            async with http.post(f"{url}/{path}", json=said) as answer:
                told: dict[str, Any] = await answer.json() if answer.status == 200 else {}
            if not told or "error" in told:
                raise BenchmarkError(f"the page's {path} was answered {answer.status} {told}")
            return told

        token = (await ask("login", code=json.loads(code_file.read_text())["code"]))["token"]
        http.headers["Authorization"] = f"Bearer {token}"

        async def look() -> None:
            version = looks = 0
            while True:
                found = await ask("ask/look", since=version)
                version = found["version"]
                if looks % _CHART_LOOKS == 0:
                    await ask("ask/waiting")
                    stretch = {"from_ns": FIRST_NS, "to_ns": FIRST_NS + _HOUR_NS}
                    await ask("ask/history", node=NODE, type=SERIES[0], **stretch)
                looks += 1
                await asyncio.sleep(_LOOK_S)

        looking = asyncio.create_task(look())
        try:
            yield
            if looking.done():
                looking.result()
        finally:
            looking.cancel()
            await asyncio.wait([looking])


async def _publish(agent: Agent, count: int) -> None:
    for first in range(0, count, _CHUNK_POINTS):
        await agent.publish_batch(NODE, points(min(_CHUNK_POINTS, count - first), first))


async def _idle_interpreter(directory: Path) -> list[Figure]:
    """Measure a Python that has only asyncio and SQLite loaded, then nothing at all."""
    figures: list[Figure] = []
    for name, imports in (
        ("idle Python with asyncio and sqlite3", "import asyncio, sqlite3, ssl; "),
        ("idle Python", ""),
    ):
        log = directory / "idle.log"
        code = f"{imports}import signal; print('up', flush=True); signal.pause()"
        idle = Part(name, [sys.executable, "-c", code], log)
        seen = idle.logged_bytes
        await idle.start()
        try:
            async with asyncio.timeout(20):
                while b"up" not in idle.logged(seen):  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.01)
            figures += _figures(name, idle.pid)
        finally:
            await idle.stop()
    return figures


def _peak_bytes(pid: int) -> int:
    """Return the largest resident set so far; `ru_maxrss` would be that of who started it."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise BenchmarkError("this system does not tell a process's peak memory")


def _figures(name: str, pid: int, *, aimed: bool = False) -> list[Figure]:
    found = psutil.Process(pid).memory_full_info()
    return [
        Figure(f"{name}: resident", found.rss / 1e6, "MB", AIM if aimed else None),
        Figure(f"{name}: proportional", found.pss / 1e6, "MB", AIM if aimed else None),
    ]

"""The page's screen Fleet with 10,000 devices: how soon it shows them, and how it bears 1,000 changes a second.

Server, control plane, page and Chromium are real. The devices stand in hub.db as if they had been enrolled and had sent for a day;
none is connected. Changes are published as the control plane tells them, by its own login, so its work for them is not in
the figures. Chromium runs on the same machine. `--minutes 10` changes for so long, and shows whether the tab's memory grows.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import re
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
from nats.aio.client import Client
from playwright.async_api import Page, async_playwright

from backhaul_codec.assurance.completeness import HOUR_NS
from backhaul_codec.ranges import RangeSet
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.continuity.lane_state import LaneState
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.store import Registry
from backhaul_hub.lane_records.lane_rows import ReadPosition, store_read
from backhaul_hub.page.server import FILES
from backhaul_hub.people.identity import May, Person
from backhaul_hub.people.login import connect_person
from backhaul_runtime.clock import SystemClock
from benchmarks import scratch
from benchmarks.errors import BenchmarkError
from benchmarks.figures import Figure, at_most, report
from benchmarks.gateway import options
from tests.browser.park import PageHub
from tests.support.hub_acts import add_person, make_link

HOURS = 24
CHANGES_S = 1000
PROBES = 20
TRACED_S = 20
CHANGED = "what has changed"
BYTES_MAX = 250_000
OLGA = Person("olga", "fleet", May.READ)
_CLOCK = SystemClock()
_WAIT_MS = 180_000
_TRACED = "disabled-by-default-devtools.timeline"
_DRAWN = ".heat [role=grid][aria-rowcount]:not([aria-rowcount='0'])"
_OBSERVE = """() => {
  window.tasks = []
  new PerformanceObserver(list => window.tasks.push(...list.getEntries().map(each => [each.startTime, each.duration])))
    .observe({ type: "longtask" })
}"""
# Ends with the time of the frame that shows it, in milliseconds since 1970.
_SEEN = """value => new Promise(done => {
  const look = () => document.querySelector(".table-body")?.textContent.includes(value)
    ? done(performance.timeOrigin + performance.now()) : requestAnimationFrame(look)
  look()
})"""


def run(*, quick: bool) -> dict[str, object]:
    """Show the fleet, change it."""
    count, seconds = (1000, 5) if quick else (10_000, 30)
    minutes = options.CHOSEN.get().minutes
    seconds = seconds if minutes is None else round(60 * minutes)
    if shutil.which("chromium") is None or not (FILES / "built.json").exists():
        return {"skipped": "no chromium, or the page is not built"}
    with scratch.directory("page") as directory:
        figures = asyncio.run(_measure(directory, count, seconds))
    return report(f"page: {count} devices, {CHANGES_S} changes a second", figures)


async def _measure(directory: Path, count: int, seconds: int) -> list[Figure]:
    hub = PageHub(directory / "hub")
    hub.health = ""
    await hub.init()
    names = [f"VID-{number:05}" for number in range(count)]
    await _enrol(hub.directory / "hub.db", names)
    await hub.start()
    try:
        await add_person(hub.directory, _CLOCK, OLGA, directory / "olga.creds")
        token = await make_link(hub.directory, _CLOCK, OLGA.name, 3600.0)
        words = ["--no-sandbox"] if os.geteuid() == 0 else []
        async with async_playwright() as playwright, hub.connection("control") as control:
            browser = await playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=words
            )
            page = await browser.new_page()
            page.set_default_timeout(_WAIT_MS)
            await page.goto(f"{hub.url}/#/login/{token}")
            await _all_there(page, count)
            figures = await _shown(page, count)
            figures += await _hours_again(hub)
            figures += await _changed(page, control, names, seconds)
            await browser.close()
    finally:
        await hub.stop()
    built = json.loads((FILES / "built.json").read_text())
    size = Figure("whole page, compressed", built["gzip_bytes"], "bytes", at_most(BYTES_MAX))
    return [*figures, size]


async def _shown(page: Page, count: int) -> list[Figure]:
    """Load the page again: the login is kept, nothing else."""
    began_s = _CLOCK.monotonic_s()
    await page.reload(wait_until="commit")
    await page.locator(_DRAWN).wait_for()
    drawn_s = _CLOCK.monotonic_s() - began_s
    await _all_there(page, count)
    return [
        Figure("first useful picture", drawn_s, "s", at_most(2), "heat map with its first rows"),
        Figure("all devices there", _CLOCK.monotonic_s() - began_s, "s", None, "table and counts"),
    ]


async def _all_there(page: Page, count: int) -> None:
    text = re.compile(rf"^{count:,}devices$")
    await page.locator(".tallies button").filter(has_text=text).wait_for()


async def _changed(page: Page, control: Client, names: list[str], seconds: int) -> list[Figure]:
    await page.evaluate(_OBSERVE)
    # The tab keeps the objects that the first changes made: each device's row anew, with its value.
    stop = asyncio.Event()
    changing = asyncio.create_task(_change(control, names, stop))
    latencies: list[float] = []
    heaps: list[float] = []
    processes: list[float] = []
    looks: list[tuple[float, float]] = []
    for number in range(PROBES):
        value = 1000.5 + number
        seen = asyncio.create_task(page.evaluate(_SEEN, f"{value:.5g}"))
        await asyncio.sleep(seconds / PROBES)
        sent_ms = time.time_ns() / 1e6
        await _tell(control, names[0], value)
        await control.flush()
        latencies.append(await asyncio.wait_for(seen, 60) - sent_ms)
        began_ms = await page.evaluate("performance.now()")
        heaps.append(await _heap(page) / 1e6)
        processes.append(_tab_process().memory_full_info().uss / 1e6)
        looks.append((began_ms, await page.evaluate("performance.now()")))
    processor_ms = await _traced(page, min(seconds, TRACED_S))
    stop.set()
    sent, took_s = await changing
    if sent / took_s < CHANGES_S / 2:
        raise BenchmarkError(f"{sent / took_s:.0f} changes a second were sent: the machine is busy")
    # Looking at the memory collects garbage, which holds the page up: that is no task of its own.
    tasks = [
        duration_ms
        for start_ms, duration_ms in await page.evaluate("window.tasks")
        if not any(began < start_ms + duration_ms and start_ms < ended for began, ended in looks)
    ]
    return [
        Figure("changes told a second", sent / took_s, "/s"),
        Figure("longest task of the page", max(tasks, default=0), "ms", at_most(100)),
        Figure("tasks over 50 ms", len(tasks), "", None, f"in {took_s:.0f} s"),
        Figure("longest task, processor time", processor_ms, "ms", at_most(100)),
        Figure(
            "from publishing to the pixel, median",
            statistics.median(latencies),
            "ms",
            at_most(1000),
        ),
        *_memory("tab's objects", heaps),
        *_memory("tab's process", processes),
    ]


async def _traced(page: Page, seconds: float) -> float:
    """Return the most milliseconds of processor that a task of the page takes: what else the machine does is not in it."""
    browser = page.context.browser
    assert browser is not None
    await browser.start_tracing(page=page, categories=["-*", _TRACED])
    await asyncio.sleep(seconds)
    events = json.loads(await browser.stop_tracing())["traceEvents"]
    process = _tab_process().pid
    tasks = [each for each in events if each["name"] == "RunTask" and each["pid"] == process]
    return max((each.get("tdur", 0) / 1000 for each in tasks), default=math.inf)


def _memory(what: str, megabytes: list[float]) -> list[Figure]:
    """Return how memory grows once the tab has all that it keeps: of the looks' last three quarters, half against half."""
    settled = megabytes[len(megabytes) // 4 :]
    half = len(settled) // 2
    first, second = (statistics.median(some) for some in (settled[:half], settled[half:]))
    # Garbage comes and goes between collections: the least value shows the memory that the tab keeps.
    fifth = max(1, len(megabytes) // 5)
    least = [min(megabytes[at : at + fifth]) for at in range(0, len(megabytes), fifth)]
    about = f"least of each fifth: {', '.join(f'{each:.1f}' for each in least)}"
    return [
        Figure(f"{what}, memory", second, "MB", None, about),
        Figure(f"{what}, second half to first", second / first, "times", at_most(1.1)),
    ]


def _tab_process() -> psutil.Process:
    """Return the process of the tab: of Chromium's renderers, one stands ready for a tab that nobody opens."""
    renderers = [
        each
        for each in psutil.Process().children(recursive=True)
        if "--type=renderer" in each.cmdline()
    ]
    return max(renderers, key=lambda each: each.memory_info().rss)


async def _hours_again(hub: PageHub) -> list[Figure]:
    """Ask for the hours of all devices as two more browsers do: the first anew, then by what has changed."""
    control = psutil.Process(hub.control.pid)

    def spent_s() -> float:
        times = control.cpu_times()
        return float(times.user + times.system)

    now = _CLOCK.now_ns() // HOUR_NS
    question: dict[str, Any] = {"from_ns": (now - 23) * HOUR_NS, "to_ns": (now + 1) * HOUR_NS}
    creds = hub.directory.parent / "olga.creds"
    client = await connect_person(hub.addresses()[0], creds, OLGA)
    figures: list[Figure] = []
    try:
        known = ""
        for what in ("not asked for before", "of another browser", CHANGED):
            since = known if what == CHANGED else ""
            began_s, size, pages, after, first = spent_s(), 0, 0, "", ""
            while True:
                body = json.dumps({**question, "after": after, "since": since}).encode()
                answer = await client.request(OLGA.ask("hours"), body, timeout=60)
                told = json.loads(answer.data)
                first, size, pages = first or told["known"], size + len(answer.data), pages + 1
                if told["next"] is None:
                    break
                after = told["next"]
            cost_s = spent_s() - began_s
            about = f"{size / 1000:.0f} kB in {pages} answers"
            figures.append(Figure(f"hours, {what}", cost_s, "s of processor", None, about))
            known = first
    finally:
        await client.close()
    return figures


async def _change(control: Client, names: list[str], stop: asyncio.Event) -> tuple[int, float]:
    """Tell changes evenly until `stop`; return how many, and in how many seconds."""
    draw = random.Random(1)
    began_s = _CLOCK.monotonic_s()
    sent = 0
    while not stop.is_set():
        due = int((_CLOCK.monotonic_s() - began_s) * CHANGES_S)
        for _ in range(due - sent):
            await _tell(control, draw.choice(names[1:]), round(draw.uniform(0, 100), 2))
        sent = max(sent, due)
        await asyncio.sleep(0.01)
    return sent, _CLOCK.monotonic_s() - began_s


async def _tell(control: Client, device: str, value: float) -> None:
    point: dict[str, Any] = {"device": device, "node": "battery", "type": "soc", "key": ""}
    point |= {"time": time.time_ns(), "value": value, "dtype": "float", "tombstone": False}
    subject = f"up.fleet.{device}%2Fbattery.soc.%"
    await control.publish(subject, json.dumps(point).encode())


async def _heap(page: Page) -> float:
    session = await page.context.new_cdp_session(page)
    await session.send("HeapProfiler.collectGarbage")
    used = await session.send("Runtime.getHeapUsage")
    await session.detach()
    # JavaScript's objects, what stands behind its arrays, and the document's nodes.
    parts = "usedSize", "backingStorageSize", "embedderHeapUsedSize"
    return float(sum(used.get(part, 0) for part in parts))


async def _enrol(path: Path, names: list[str]) -> None:
    """Write devices into hub.db, with a day of marks: most have all, one in ten lacks something."""
    draw = random.Random(2)
    now_ns = _CLOCK.now_ns()
    first = now_ns // HOUR_NS - HOURS
    lanes, marks, devices = {}, [], []
    for number, name in enumerate(names):
        devices.append((name, f"token{number:012}", f"U{number:055}", now_ns))
        held = RangeSet([(1, 60 * HOURS)])
        if number % 10 == 0:
            hole = draw.randrange(1, 60 * HOURS - 60)
            held = RangeSet([(1, hole), (hole + 20, 60 * HOURS)])
        lanes[LaneKey(name, "bulk", 1)] = LaneState(
            held=held, seen=held, said=60 * HOURS, messages=60 * HOURS, last_seen_ns=now_ns
        )
        for hour in range(HOURS + 1):
            seq, at = 60 * hour, first + hour
            marks.append(
                (name, 1, hour + 1, at, at * HOUR_NS, json.dumps({"bulk": seq}), "hour", "{}")
            )
    async with await Registry.open(path) as registry:
        await registry.write([RowChange("INSERT INTO device VALUES (?, ?, ?, ?)", devices)])
        for some in (marks[at : at + 50_000] for at in range(0, len(marks), 50_000)):
            await registry.write(
                [RowChange("INSERT INTO mark VALUES (?, ?, ?, ?, ?, ?, ?, ?)", some)]
            )
        await store_read(registry, "none", ReadPosition(), lanes)

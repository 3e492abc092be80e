"""Measure history at the edge: one series out of a ledger that holds a million points.

The agent's own way, with SQLite, frames of 250 and the merge by time, in one process on one core; beside
it the naive one, which reads the same rows, builds every point and sorts what fits. While the agent
reads, another task asks for the loop again and again: what it waits, a publisher would wait.

Seconds are of the processor, all threads together: on a core of its own they are those of the clock.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec

from backhaul_agent.history.ledger_source import LedgerHistory
from backhaul_agent.history.merge import HistoryQuestion, Merge, chunks
from backhaul_agent.ledger.ledger import Ledger
from backhaul_agent.ledger.rows import LedgerChanges, Outgoing
from backhaul_codec import Point, decode, encode_frame
from backhaul_codec.subjects import frame_subject
from benchmarks import scratch
from benchmarks.errors import BenchmarkError
from benchmarks.figures import Figure, at_most, report

POINTS = 1_000_000
FRAME_POINTS = 250
STEP_NS = 100_000_000
START_NS = 1_767_225_600_000_000_000
TYPES = ("soc", "voltage", "temperature", "current")
PAUSE_S = 0.001
AIM = at_most(1.0)


def run(*, quick: bool) -> dict[str, object]:
    """Fill a ledger, read it in every way, print the table, and return it."""
    with scratch.directory("edge-history") as directory:
        figures = asyncio.run(_measure(directory, repeats=2 if quick else 5))
    return report(f"edge_history: processor seconds to read a ledger of {POINTS:,} points", figures)


async def _measure(directory: Path, *, repeats: int) -> list[Figure]:
    figures: list[Figure] = []
    for node, types in (("battery", TYPES), ("imu", TYPES[:1])):
        path = directory / f"{node}.db"
        ledger = await Ledger.open(path, device="VID-001", bytes_max=1 << 30, epoch=lambda: 1)
        try:
            await _fill(ledger, node, types)
            figures += await _of_one(ledger, path, node, types, repeats)
        finally:
            await ledger.close()
    return figures


async def _of_one(
    ledger: Ledger, path: Path, node: str, types: tuple[str, ...], repeats: int
) -> list[Figure]:
    span_ns = POINTS // len(types) * STEP_NS
    everything = HistoryQuestion(node, types[0], "", START_NS, START_NS + span_ns, POINTS)
    few = everything._replace(
        from_ns=START_NS + span_ns // 2, to_ns=START_NS + span_ns // 2 + span_ns // 100
    )
    what = f"1 series of {len(types)}"
    expected = POINTS // len(types)
    scan_s, wait_s = await _best(ledger, everything, expected, repeats)
    answer_s, _ = await _best(ledger, everything, expected, repeats, encode=True)
    part_s, _ = await _best(ledger, few, expected // 100, repeats)
    naive_s = _naive(path, everything, expected)
    return [
        Figure(f"{what}, all: read", scan_s, "s", AIM, f"{expected:,} points found"),
        Figure(f"{what}, all: with JSON", answer_s, "s", note="as the request is answered"),
        Figure(f"{what}, a hundredth", part_s, "s", note="by the index"),
        Figure(f"{what}, all: naive", naive_s, "s", note="decode every point, sort"),
        Figure(f"{what}: longest wait", wait_s * 1e3, "ms", note="of the loop, meanwhile"),
    ]


async def _fill(ledger: Ledger, node: str, types: tuple[str, ...]) -> None:
    frames = _frames(node, types)
    while messages := list(islice(frames, 64)):
        await ledger.commit(LedgerChanges(messages))


def _frames(node: str, types: tuple[str, ...]) -> Iterator[Outgoing]:
    walk = random.Random(3)
    values = dict.fromkeys(types, 80.0)
    points: list[Point] = []
    for tick in range(POINTS // len(types)):
        stamp = START_NS + tick * STEP_NS
        for type_ in types:
            values[type_] = round(values[type_] + walk.uniform(-0.3, 0.3), 1)
            points.append(Point(node, type_, stamp, values[type_]))
        if len(points) >= FRAME_POINTS:
            frame, points = points[:FRAME_POINTS], points[FRAME_POINTS:]
            body = encode_frame(frame, epoch=0, seq=0)
            times = (frame[0].time, frame[-1].time)
            yield Outgoing("bulk", frame_subject(node), body, times=times)
    if points:
        raise BenchmarkError("the points do not fill the last frame")


async def _best(
    ledger: Ledger, question: HistoryQuestion, expected: int, repeats: int, *, encode: bool = False
) -> tuple[float, float]:
    """Return the shortest of several runs, and the longest wait of the loop in it."""
    runs = []
    for _ in range(repeats):
        waits: list[float] = []
        watching = asyncio.create_task(_watch(waits))
        await asyncio.sleep(0)
        start_s = time.process_time()
        found = await _read(ledger, question, encode=encode)
        runs.append((time.process_time() - start_s, max(waits, default=0.0)))
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        if found != expected:
            raise BenchmarkError(f"{found} points found, {expected} are there")
    return min(runs)


async def _watch(waits: list[float]) -> None:
    while True:
        start_s = time.perf_counter()
        await asyncio.sleep(PAUSE_S)
        waits.append(time.perf_counter() - start_s - PAUSE_S)


async def _read(ledger: Ledger, question: HistoryQuestion, *, encode: bool) -> int:
    merge = Merge(question.limit)
    async for run, horizon_ns in LedgerHistory(ledger, question).runs():
        merge.add(run)
        taken = merge.take(horizon_ns)
        for piece in chunks(taken) if encode else ():
            msgspec.json.encode(piece)
    return merge.points


def _naive(path: Path, question: HistoryQuestion, expected: int) -> float:
    db = sqlite3.connect(path)
    try:
        start_s = time.process_time()
        found = sorted(
            (point.time, point.value)
            for (body,) in db.execute("SELECT body FROM messages ORDER BY id")
            for point in decode(body).points
            if (point.node, point.type, point.key) == question[:3]
            and question.from_ns <= point.time < question.to_ns
        )
        seconds = time.process_time() - start_s
    finally:
        db.close()
    if len(found) != expected:
        raise BenchmarkError(f"naive found {len(found)} points, {expected} are there")
    return seconds

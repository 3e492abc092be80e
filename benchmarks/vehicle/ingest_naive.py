"""Make readings durable without an agent, one by one: what group commit and frames are worth.

Both store each reading with an fsync of its own, on the same disk as the agent did: SQLite with a
transaction for each, and a leaf's JetStream with `sync_interval: always` and a message for each.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from pathlib import Path

from nats.js.client import JetStreamContext

from backhaul_codec.subjects import point_subject
from backhaul_hub.nats.jetstream import JetStreamApi
from benchmarks.figures import Figure
from benchmarks.link.plain_link import LEAF_STREAM, make_stream, plain_server
from tests.support.errors import LostDataError
from tests.support.numbered_points import point
from tests.support.rig.vehicle import connection

WAITING_PUBLISHERS = 256


def measure(directory: Path, *, seconds: float) -> list[Figure]:
    """Run each way for about `seconds`."""
    return [
        Figure(
            "naive: SQLite, a commit each",
            _sqlite(directory / "naive.db", seconds),
            "points/s",
            note="WAL, synchronous=FULL",
        ),
        *asyncio.run(_jetstream(directory, seconds)),
    ]


def _sqlite(path: Path, seconds: float) -> float:
    db = sqlite3.connect(path, isolation_level=None)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE points (node TEXT, type TEXT, key TEXT, time INT, value REAL)")
        stored = 0
        start_s = time.perf_counter()
        while (elapsed_s := time.perf_counter() - start_s) < seconds:
            each = point(stored)
            row = (each.node, each.type, each.key, each.time, each.value)
            db.execute("INSERT INTO points VALUES (?, ?, ?, ?, ?)", row)
            stored += 1
        (found,) = db.execute("SELECT count(*) FROM points").fetchone()
    finally:
        db.close()
    _require("SQLite", found, stored)
    return stored / elapsed_s


async def _jetstream(directory: Path, seconds: float) -> list[Figure]:
    figures = []
    async with (
        plain_server(directory, "naive-leaf", sync_interval="always") as url,
        connection(url) as client,
    ):
        await make_stream(JetStreamApi(client))
        jetstream, stored = client.jetstream(), 0
        for publishers in (1, WAITING_PUBLISHERS):
            start_s = time.perf_counter()
            count = await _publish(jetstream, stored, publishers, seconds)
            rate = count / (time.perf_counter() - start_s)
            stored += count
            name = f"naive: JetStream, {publishers} waiting"
            figures.append(Figure(name, rate, "points/s", note="sync_interval: always"))
        info = await JetStreamApi(client).request(f"STREAM.INFO.{LEAF_STREAM}")
    _require("JetStream", info["state"]["messages"], stored)
    return figures


async def _publish(jetstream: JetStreamContext, first: int, publishers: int, seconds: float) -> int:
    """Publish for `seconds` from some publishers, each waiting for its acknowledgement."""
    until_s = time.perf_counter() + seconds
    number = first

    async def one_after_another() -> None:
        nonlocal number
        while time.perf_counter() < until_s:
            each = point(number)
            number += 1
            subject = point_subject(each.node, each.type, each.key)
            body = json.dumps({"time": each.time, "value": each.value}).encode()
            await jetstream.publish(subject, body, timeout=30)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(publishers):
            tasks.create_task(one_after_another())
    return number - first


def _require(what: str, found: int, stored: int) -> None:
    if found != stored:
        raise LostDataError(what, missing=max(0, stored - found), doubled=max(0, found - stored))

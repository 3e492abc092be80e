"""Ledgers to try things on: opened, filled, and put on a disk that fails."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

from backhaul_agent.ledger.ledger import Ledger
from backhaul_agent.ledger.rows import LedgerChanges, Opening, Outgoing, Staged
from backhaul_agent.ledger.schema import open_file
from backhaul_agent.ledger.system_events import epoch_event
from backhaul_codec import Point, encode_frame, encode_point

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import aiosqlite


MIB = 1 << 20


async def open_ledger(path: Path, **options: Any) -> Ledger:
    settings: dict[str, Any] = {
        "device": "VID-001",
        "bytes_max": 64 * MIB,
        "epoch": lambda: 42,
    }
    return await Ledger.open(path, **settings | options)


def outgoing(lane: str = "bulk", size: int = 10) -> Outgoing:
    body = encode_point(Point(node="n", type="t", time=1, value="x" * size), epoch=0, seq=0)
    return Outgoing(lane, "f.n" if lane == "bulk" else "p.n.t.%", body)


class FailingDisk:
    """Opens real files whose writes fail while `error` is set, at the statement `at`."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.at = "COMMIT"
        self.on_failure: Callable[[], object] = lambda: None
        self.opened = 0

    async def __call__(self, path: Path) -> aiosqlite.Connection:
        self.opened += 1
        db = await open_file(path)
        real = db.execute

        def execute(sql: str, parameters: Any = None) -> Any:
            error = self.error
            if error is not None and sql.startswith(self.at):
                self.on_failure()  # which may mend the disk, for what comes next
                raise error
            return real(sql, parameters)

        db.execute = execute  # type: ignore[method-assign]
        return db


def opening(epoch: int = 43) -> Opening:
    def word(old: int, last_seqs: dict[str, int]) -> Outgoing:
        return epoch_event(old, epoch, last_seqs, "a test", 1)

    return Opening(epoch, word)


# What a byte of a record's header says of a column, where that takes as many bytes as what it was.
NOTHING, BYTES, FLOAT, BLOB_OF_6 = 0, 12, 7, 24


def spoil(path: Path, table: str, near: bytes, offset: int, value: int) -> None:
    """Write one byte beside what stands in the one page of a table."""
    with closing(sqlite3.connect(path)) as db:
        [(root,)] = db.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,))
    body = bytearray(path.read_bytes())
    page = (root - 1) * 4096
    body[body.index(near, page, page + 4096) + offset] = value
    path.write_bytes(body)


async def commit(ledger: Ledger, number: int) -> None:
    points = [Point("imu", "value", number * 10**9 + at, float(at)) for at in range(60)]
    body = encode_frame(points, epoch=0, seq=0)
    await ledger.commit(
        LedgerChanges([Outgoing("bulk", "f.imu", body)], [Staged("gps", 1, b"%d" % number)])
    )

"""A fleet whose points come into tables without servers and without Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from backhaul_codec import Opaque, Point, encode_frame, encode_point
from backhaul_codec.points import JSON
from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.completeness.hour_reports import HourReports
from backhaul_spark.ingest.batch import Ingest
from backhaul_spark.rollup.rollup import Restated, Rollup, run_here
from tests.support.spark_frames import T0_NS, message_batch, stored, task

if TYPE_CHECKING:
    from pathlib import Path

    from backhaul_codec import Value
    from backhaul_runtime.clock import Clock

MINUTE_NS, HOUR_NS, DAY_NS = 60_000_000_000, 3_600_000_000_000, 86_400_000_000_000


class Fleet:
    """Points come in, rollups go out; `now_ns` is what the clock says, if it is not the system's."""

    def __init__(self, root: Path, now_ns: int | None = None) -> None:
        self.root = str(root)
        self.now_ns = now_ns
        self._ingest = Ingest(self.root, SYSTEM_CLOCK)
        self._seqs: dict[tuple[str, str], int] = {}
        self._batch = -1
        self._stream_seq = 1

    def send(
        self,
        *points: tuple[int, Value],
        device: str = "VID-001",
        type_: str = "soc",
        clock: int = 0,
    ) -> None:
        """Ingest one frame of (ns after T0, value)."""
        seq = self._next(device, "bulk")
        rows = [Point("battery", type_, T0_NS + at, value) for at, value in points]
        self._take(encode_frame(rows, epoch=1, seq=seq, clock=clock), device, "f.battery")

    def send_alone(self, at: int, value: Value, *, tombstone: int = 0) -> None:
        """Ingest one point message."""
        point = Point("battery", "soc", T0_NS + at, value, tombstone=tombstone)
        body = encode_point(point, epoch=1, seq=self._next("VID-001", "live"))
        self._take(body, "VID-001", "p.battery.soc.%")

    def mark(self, hour: float, bulk: int, device: str = "VID-001") -> None:
        """Let the vehicle say, hours after T0, how far its lanes are."""
        live = self._next(device, "live")
        said = {"epoch": 1, "lanes": {"live": live, "bulk": bulk}, "why": "hour"}
        data = Opaque(JSON, json.dumps(said).encode())
        point = Point("agent", "mark", T0_NS + int(hour * HOUR_NS), data)
        self._take(encode_point(point, epoch=1, seq=live), device, "e.mark")

    def report_hours(self) -> None:
        HourReports(self.root, self.clock).run()

    def rollup(self) -> Restated:
        return Rollup(self.root, self.clock, run_here).run()

    @property
    def clock(self) -> Clock:
        return SYSTEM_CLOCK if self.now_ns is None else _Stopped(self.now_ns)

    @property
    def ingested(self) -> int:
        """The number of the last ingest."""
        return self._ingest.tables.committed

    def skip(self, seqs: int, device: str = "VID-001") -> None:
        """Let messages of bulk stay away."""
        self._seqs[device, "bulk"] = self._seqs.get((device, "bulk"), 0) + seqs

    def rows(self, table: str = "rollups") -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = (
            DeltaTable(f"{self.root}/{table}").to_pyarrow_table().to_pylist()
        )
        return rows

    def windows(self, width: str = "1m", device: str = "VID-001") -> dict[int, dict[str, Any]]:
        """Return the rows of a device by minutes since T0."""
        return {
            round(row["window_start"].timestamp() - T0_NS / 1e9) // 60: row
            for row in self.rows()
            if row["width"] == width and row["device"] == device
        }

    def _next(self, device: str, lane: str) -> int:
        self._seqs[device, lane] = self._seqs.get((device, lane), 0) + 1
        return self._seqs[device, lane]

    def _take(self, body: bytes, device: str, leaf: str) -> None:
        self._batch += 1
        batch = message_batch(
            "UP_00", stored([body], device=device, leaf=leaf, first_seq=self._stream_seq)
        )
        self._stream_seq += 1
        report = task(self.root, self._ingest.tables.next_ingest, batch)
        self._ingest.commit("app", self._batch, [report])


class _Stopped:
    """A clock that stands."""

    def __init__(self, now_ns: int) -> None:
        self._now_ns = now_ns

    def now_ns(self) -> int:
        return self._now_ns

    def monotonic_s(self) -> float:
        raise AssertionError

    def sleep(self, seconds: float) -> None:
        raise AssertionError

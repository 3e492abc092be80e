"""Tables whose hours are reported."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from backhaul_codec import Opaque, Point, encode_point
from backhaul_codec.assurance.completeness import HOUR_NS
from backhaul_codec.points import JSON
from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.completeness.hour_reports import HourReports, Judged, hour_reports
from backhaul_spark.ingest.batch import Ingest
from tests.support.spark_frames import T0_NS, frame, message_batch, stored, task

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa  # type: ignore[import-untyped]


class HoursLater:
    """A clock that stands where the test puts it: hours after the vehicle's first hour began."""

    def __init__(self, hours: float) -> None:
        self.hours = hours

    def now_ns(self) -> int:
        return at(self.hours)

    def monotonic_s(self) -> float:
        raise AssertionError

    def sleep(self, seconds: float) -> None:
        raise AssertionError


class World:
    """Tables, and a vehicle whose messages come into them."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.clock = HoursLater(4.5)
        self._stream_seq = 0

    def take(self, *parts: pa.RecordBatch) -> None:
        ingest = Ingest(self.root, SYSTEM_CLOCK)
        number = ingest.tables.next_ingest
        reports = [task(self.root, number, part) for part in parts]
        ingest.commit(f"app-{number}", 0, reports)

    def report_hours(self) -> Judged:
        return HourReports(self.root, self.clock).run()

    def messages(self, bodies: list[bytes], leaf: str, device: str = "VID-001") -> pa.RecordBatch:
        first = self._stream_seq + 1
        self._stream_seq += len(bodies)
        found = stored(bodies, device=device, leaf=leaf, first_seq=first)
        return message_batch("UP_00", found)

    def bulk(self, *seqs: int, epoch: int = 7) -> pa.RecordBatch:
        bodies = [frame(seq, epoch=epoch, start_ns=T0_NS) for seq in seqs]
        return self.messages(bodies, "f.battery")

    def event(self, kind: str, seq: int, value: object, hours: float = 0, epoch: int = 7) -> Any:
        data = Opaque(JSON, json.dumps(value).encode())
        body = encode_point(Point("agent", kind, at(hours), data), epoch=epoch, seq=seq)
        return self.messages([body], f"e.{kind}")

    def mark(self, seq: int, hours: float, bulk: int, epoch: int = 7) -> pa.RecordBatch:
        lanes = {"live": seq, "bulk": bulk}
        return self.event(
            "mark", seq, {"epoch": epoch, "lanes": lanes, "why": "hour"}, hours, epoch
        )

    def marks(self) -> list[pa.RecordBatch]:
        """Four hours' marks: 0, 10, 20, 30 and 40 messages of bulk."""
        return [self.mark(hour + 1, hour, 10 * hour) for hour in range(5)]

    def states(self) -> list[str]:
        return [hour.state for _, hour in hour_reports(self.root)]

    def rows(self) -> list[dict[str, Any]]:
        table = DeltaTable(f"{self.root}/certificates").to_pyarrow_table()
        rows: list[dict[str, Any]] = table.sort_by("hour").to_pylist()
        return rows


def at(hours: float) -> int:
    return T0_NS + int(hours * HOUR_NS)

"""A hub's server, tables that the ingest's own code writes from it, and the answers of the server of history."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backhaul_codec import Point, encode_frame, encode_point
from backhaul_codec.protocol.history import PastQuestion
from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.ingest.batch import Ingest
from backhaul_spark.nats.direct_get import list_streams, read_range
from backhaul_spark.nats.endpoint import endpoint_from
from backhaul_spark.nats.messages import message_batch
from backhaul_spark.nats.offsets import ReadMark, to_json
from backhaul_spark.rollup.rollup import Rollup, run_here
from backhaul_spark.serve.answers import HistoryAnswers
from backhaul_spark.serve.tail import TailReader
from backhaul_spark.serve.view import Tables
from backhaul_spark.tables.part_writer import TaskReport, write_parts
from tests.support.spark_frames import T0_NS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backhaul_codec import Value

CHECKPOINT = "0b5c"
T0_US = T0_NS // 1000
SECOND_US, HOUR_US = 1_000_000, 3_600_000_000


class PastWorld:
    """Messages come into UP; `ingest` writes those into tables that came since, `ask` asks.

    Args:
        root: for tables and checkpoint.
        options: as the data source's: where the hub is, and a login.
        put: puts messages into UP, on a subject.
    """

    def __init__(self, root: Path, options: Mapping[str, str], put: Any) -> None:
        self.root = root / "tables"
        self.checkpoint = root / "checkpoint"
        self.endpoint = endpoint_from(options)
        self.put = put
        self.marks: dict[str, ReadMark] = {}
        self.batch = -1
        self.seqs: dict[tuple[str, str], int] = {}
        self._ingest: Ingest | None = None
        tables = Tables(str(self.root), str(self.checkpoint))
        self.answers = HistoryAnswers(tables, TailReader(self.endpoint), SYSTEM_CLOCK)

    def frame(
        self,
        *said: tuple[float, Value],
        type_: str = "soc",
        seq: int = 0,
        device: str = "VID-001",
    ) -> bytes:
        """Put a frame of (seconds after T0, value) into UP, and return its body."""
        seq = seq or self._next(device, "bulk")
        points = [Point("battery", type_, T0_NS + round(at * 1e9), value) for at, value in said]
        body = encode_frame(points, epoch=1, seq=seq)
        self.put(f"up.{device}.f.battery", body)
        return body

    def alone(self, at: float, value: Value, *, type_: str = "soc") -> None:
        """Put a state point into UP."""
        point = Point("battery", type_, T0_NS + round(at * 1e9), value)
        body = encode_point(point, epoch=1, seq=self._next("VID-001", "live"))
        self.put(f"up.VID-001.p.battery.{type_}.%", body)

    def _next(self, device: str, lane: str) -> int:
        self.seqs[device, lane] = self.seqs.get((device, lane), 0) + 1
        return self.seqs[device, lane]

    def ingest(self, messages: int | None = None) -> None:
        """Write the messages that came since, or so many of them, into the tables."""
        self._ingest = self._ingest or Ingest(str(self.root), SYSTEM_CLOCK)
        number = self._ingest.tables.next_ingest
        reports = []
        for name, info in list_streams(self.endpoint, ["UP_*"]).items():
            mark = self.marks.get(name, ReadMark(0, info.created))
            last = info.last_seq if messages is None else min(info.last_seq, mark.seq + messages)
            stamp = mark.stamp
            for part in read_range(self.endpoint, name, mark.seq + 1, last):
                batch = message_batch(name, part)
                [row] = write_parts([batch], f"{self.root}/points", number, 0)
                reports.append(TaskReport.from_row(**row.to_pylist()[0]))
                stamp = part.times[-1]
            self.marks[name] = ReadMark(last, info.created, stamp)
        self.batch += 1
        self._note_checkpoint()
        self._ingest.commit(f"backhaul-checkpoint-{CHECKPOINT}", self.batch, reports)

    def _note_checkpoint(self) -> None:
        """Write what Spark does before a batch."""
        offsets = self.checkpoint / "offsets"
        offsets.mkdir(parents=True, exist_ok=True)
        (self.checkpoint / "metadata").write_text(json.dumps({"id": CHECKPOINT}))
        lines = ["v1", "{}", json.dumps(to_json(self.marks))]
        (offsets / str(self.batch)).write_text("\n".join(lines))

    def rollup(self) -> None:
        Rollup(str(self.root), SYSTEM_CLOCK, run_here).run()

    def ask(
        self,
        from_s: float = 0,
        to_s: float = 3600,
        *,
        points_max: int = 1000,
        type_: str = "soc",
        device: str = "VID-001",
    ) -> dict[str, Any]:
        """Ask about a range of seconds after T0."""
        question = PastQuestion(
            device,
            "battery",
            type_,
            T0_US + round(from_s * 1e6),
            T0_US + round(to_s * 1e6),
            points_max=points_max,
        )
        return self.answers.answer(question)


def readings(answer: dict[str, Any]) -> list[tuple[float, float]]:
    """Return an answer's (seconds after T0, value)."""
    assert answer["width_us"] == 0
    assert answer["min"] == answer["max"]
    assert set(answer["n"]) <= {1}
    times = [(at - T0_US) / 1e6 for at in answer["t_us"]]
    return list(zip(times, answer["min"], strict=True))

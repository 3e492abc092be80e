"""Messages as the hub's streams hold them, made without a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backhaul_codec import Point, Value, encode_frame
from backhaul_spark.nats.messages import message_batch
from backhaul_spark.nats.stored import Stored
from backhaul_spark.tables.part_writer import TaskReport, write_parts

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pyarrow as pa  # type: ignore[import-untyped]

T0_NS = 1_767_225_600_000_000_000  # 2026-01-01T00:00:00Z
STORED = "2026-03-01T00:00:00.123456789Z"


def frame(
    seq: int,
    values: Sequence[Value] = (1.5, 2.5),
    *,
    epoch: int = 1,
    node: str = "battery",
    type_: str = "soc",
    start_ns: int | None = None,
    step_ns: int = 1_000_000_000,
    clock: int = 0,
) -> bytes:
    """A bulk message of one series; by default each seq starts where the one before ended."""
    start = T0_NS + (seq - 1) * len(values) * step_ns if start_ns is None else start_ns
    points = [Point(node, type_, start + i * step_ns, v) for i, v in enumerate(values)]
    return encode_frame(points, epoch=epoch, seq=seq, clock=clock)


def stored(
    bodies: Sequence[bytes],
    *,
    device: str = "VID-001",
    leaf: str = "f.battery",
    first_seq: int = 1,
) -> Stored:
    """The bodies as one range of a stream."""
    return Stored(
        seqs=list(range(first_seq, first_seq + len(bodies))),
        subjects=[f"up.{device}.{leaf}"] * len(bodies),
        times=[STORED] * len(bodies),
        bodies=list(bodies),
    )


def task(
    root: str, ingest: int, *batches: pa.RecordBatch, standing: Collection[tuple[int, bytes]] = ()
) -> TaskReport:
    """What one Spark task would report for these message batches, files written."""
    [row] = write_parts(batches, f"{root}/points", ingest, 0, standing)
    return TaskReport.from_row(**row.to_pylist()[0])


__all__ = ["STORED", "T0_NS", "frame", "message_batch", "stored", "task"]

"""Recordings of real vehicles as points, and what frames of them weigh.

Recordings come from the directory in BACKHAUL_DATA, else from ../shared/data beside the repository.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]

from backhaul_codec import Point, encode_frame

if TYPE_CHECKING:
    from collections.abc import Callable

Nodes = dict[str, list[Point]]


def data_directory() -> Path | None:
    """Return where the recordings are, or None where they are not."""
    beside = Path(__file__).parents[3] / "shared" / "data"
    directory = Path(os.environ.get("BACKHAUL_DATA", beside))
    return directory if (directory / "kit_obd_readings.parquet").exists() else None


def bytes_per_point(nodes: Nodes, points_per_frame: int) -> float:
    """Return the mean over all frames, short last ones and envelopes included."""
    frames = frames_of(nodes, points_per_frame)
    return sum(len(frame) for frame in frames) / sum(map(len, nodes.values()))


def frames_of(nodes: Nodes, points_per_frame: int) -> list[bytes]:
    """Return the points of each node in frames, as an agent that flushes by size would."""
    return [
        encode_frame(points[at : at + points_per_frame], epoch=1, seq=1 + at)
        for points in nodes.values()
        for at in range(0, len(points), points_per_frame)
    ]


def kit(directory: Path) -> Nodes:
    """Read the KIT drives: one car a drive, ten OBD signals in turn, in order of arrival."""
    nodes: Nodes = {}
    for row in _rows(directory / "kit_obd_readings.parquet"):
        point = Point("car", row["signal"], row["t_ns"], row["value"])
        nodes.setdefault(row["drive"], []).append(point)
    return nodes


def twizy(directory: Path) -> Nodes:
    """Read the Twizy trips: all columns of a row in one sampling pass; no clock, no point."""
    return _passes(directory / "twizy_ev.parquet", "car")


def ebike(directory: Path) -> Nodes:
    """Read the e-bike trips, as the Twizy's."""
    return _passes(directory / "ebike_trips.parquet", "bike")


def px4(directory: Path) -> Nodes:
    """Read the autopilot logs: a node for each log and topic, float32 widened to double."""
    rows = _rows(directory / "px4_flight.parquet")
    nodes: Nodes = {}
    for row in sorted(rows, key=lambda row: int(row["t_ns"])):
        node = f"{row['log']}.{row['topic']}"
        point = Point(node, row["signal"], row["t_ns"], row["value"])
        nodes.setdefault(node, []).append(point)
    return nodes


RECORDINGS: dict[str, Callable[[Path], Nodes]] = {
    "KIT OBD": kit,
    "Twizy": twizy,
    "e-bike": ebike,
    "PX4": px4,
}


def _rows(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


def _passes(path: Path, node: str) -> Nodes:
    nodes: Nodes = {}
    for row in _rows(path):
        trip, time_ns = row.pop("trip"), row.pop("t_ns")
        if time_ns is not None:
            nodes.setdefault(trip, []).extend(
                Point(node, name, time_ns, value)
                for name, value in row.items()
                if value is not None
            )
    return nodes

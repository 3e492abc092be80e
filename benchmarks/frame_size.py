"""Measure what frames weigh and cost on recordings of real vehicles.

For each recording: bytes per point at several points a frame, envelope included, beside one JSON
message per point; then the time to encode a point, and points per second through each reader, on
one core. Recordings come from the directory in BACKHAUL_DATA, else from ../shared/data beside the
repository; where they are absent there is nothing to measure, and the result says so.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]

from backhaul_codec import Point, Value, check, decode, encode_frame
from backhaul_codec.bulk.columns import decode_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

POINTS_PER_FRAME = (10, 50, 200, 1000)
QUICK_ROWS = 20_000
# Decoded together, as a reader of a stream would.
FRAMES_PER_BATCH = 100
# Speed is measured on frames of this size, over this many points of a recording.
SPEED_POINTS_PER_FRAME = 250
SPEED_POINTS = 100_000

Nodes = dict[str, list[Point]]


def run(*, quick: bool) -> dict[str, object]:
    """Measure every recording, print the table, and return it."""
    directory = data_directory()
    if directory is None:
        reason = "recordings absent: set BACKHAUL_DATA to the directory that holds them"
        print(f"frame_size: skipped, {reason}")
        return {"skipped": reason}
    results = {name: _measure(load(directory), quick) for name, load in RECORDINGS.items()}
    _print_table(results)
    return {"points_per_frame": list(POINTS_PER_FRAME), "recordings": results}


def data_directory() -> Path | None:
    """Return where the recordings are, or None where they are not."""
    beside = Path(__file__).parents[2] / "shared" / "data"
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


def _measure(nodes: Nodes, quick: bool) -> dict[str, object]:
    if quick:
        nodes = _first_points(nodes, QUICK_ROWS)
    points = [point for some in nodes.values() for point in some]
    return {
        "points": len(points),
        "bytes_per_point": {
            str(size): round(bytes_per_point(nodes, size), 3) for size in POINTS_PER_FRAME
        },
        "json_bytes_per_point": round(_json_bytes(points), 1),
        **_speeds(_first_points(nodes, SPEED_POINTS), repeats=2 if quick else 5),
    }


def _first_points(nodes: Nodes, count: int) -> Nodes:
    some: Nodes = {}
    for name, points in nodes.items():
        if count > 0:
            some[name] = points[:count]
            count -= len(points)
    return some


def _json_bytes(points: list[Point]) -> float:
    return sum(len(_json(point.value, point)) for point in points) / len(points)


def _json(value: Value, point: Point) -> str:
    return json.dumps(
        {"node": point.node, "type": point.type, "time": point.time, "value": value},
        separators=(",", ":"),
    )


def _speeds(nodes: Nodes, repeats: int) -> dict[str, object]:
    size = SPEED_POINTS_PER_FRAME
    total = sum(map(len, nodes.values()))
    frames = frames_of(nodes, size)
    batches = [frames[at : at + FRAMES_PER_BATCH] for at in range(0, len(frames), FRAMES_PER_BATCH)]
    encode_s = _best_s(repeats, lambda: frames_of(nodes, size))
    rates = {
        "decode": _best_s(repeats, lambda: _drain(decode(frame) for frame in frames)),
        "check": _best_s(repeats, lambda: _drain(check(frame) for frame in frames)),
        "decode_columns": _best_s(repeats, lambda: _drain(decode_columns(b) for b in batches)),
    }
    return {
        "encode_us_per_point": round(encode_s / total * 1e6, 3),
        "points_per_s": {name: round(total / seconds) for name, seconds in rates.items()},
    }


def _drain(results: Iterable[object]) -> None:
    for _ in results:
        pass


def _best_s(repeats: int, work: Callable[[], object]) -> float:
    """Return the shortest of several runs: the others measured the machine's other work."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def _print_table(results: dict[str, Any]) -> None:
    sizes = "".join(f"{size:>8}" for size in POINTS_PER_FRAME)
    print("frame_size: bytes per point by points a frame, envelope included; one core")
    print(f"{'':10}{sizes}{'JSON':>8}{'enc us':>8}{'decode/s':>12}{'check/s':>12}{'columns/s':>12}")
    for name, result in results.items():
        weights = "".join(f"{result['bytes_per_point'][str(s)]:8.2f}" for s in POINTS_PER_FRAME)
        rates = "".join(f"{rate:12,}" for rate in result["points_per_s"].values())
        print(
            f"{name:10}{weights}{result['json_bytes_per_point']:8.1f}"
            f"{result['encode_us_per_point']:8.2f}{rates}"
        )


if __name__ == "__main__":
    run(quick=False)

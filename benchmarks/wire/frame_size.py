"""Measure what frames weigh and cost on recordings of real vehicles.

For each recording: bytes per point at several points a frame, envelope included, beside one JSON
message per point; then the time to encode a point, and points per second through each reader, on
one core. Recordings come from the directory in BACKHAUL_DATA, else from ../shared/data beside the
repository; where they are absent there is nothing to measure, and the result says so.
"""

from __future__ import annotations

import gc
import json
import timeit
from collections.abc import Callable, Iterable
from typing import Any

from backhaul_codec import Point, Value, check, decode
from backhaul_codec.bulk.columns import decode_columns
from benchmarks.figures import skipped
from tests.support.recordings import RECORDINGS, Nodes, bytes_per_point, data_directory, frames_of

POINTS_PER_FRAME = (10, 50, 200, 1000)
QUICK_ROWS = 20_000
# Decoded together, as a reader of a stream would.
FRAMES_PER_BATCH = 100
# Speed is measured on frames of this size, over this many points of a recording.
SPEED_POINTS_PER_FRAME = 250
SPEED_POINTS = 100_000


def run(*, quick: bool) -> dict[str, object]:
    """Measure every recording, print the table, and return it."""
    directory = data_directory()
    if directory is None:
        return skipped("frame_size")
    results = {name: _measure(load(directory), quick) for name, load in RECORDINGS.items()}
    _print_table(results)
    return {"points_per_frame": list(POINTS_PER_FRAME), "recordings": results}


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
    return min(timeit.repeat(work, gc.enable, repeat=repeats, number=1))


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

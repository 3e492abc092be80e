"""Measure reading history out of frames: one series over time, and the newest of each.

A battery's four series, sampled ten times a second, in frames of 250 points as the agent writes them.
The scan picks one series over all time and, as a look at one day would, over a hundredth of it; beside
it stands decoding every frame and picking points. One core, standard library and cbor2 alone; how
long a ledger takes to hand out its rows is no part of it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from backhaul_codec import Point, decode, encode_frame
from backhaul_codec.state.newest import newest_of
from backhaul_codec.wire.select import select

POINTS_PER_FRAME = 250
TYPES = ("soc", "voltage", "temperature", "current")
STEP_NS = 100_000_000
START_NS = 1_767_225_600_000_000_000
# Frames are made once and read again and again, as if they went on: making them is the slow part.
DISTINCT_FRAMES = 400
SCAN_AIM_S = 1.0


def run(*, quick: bool) -> dict[str, object]:
    """Measure scans of 1 and 4 million stored points, and the newest values; print and return."""
    frames = _frames(DISTINCT_FRAMES)
    repeats = 2 if quick else 5
    results: dict[str, Any] = {
        "points_per_frame": POINTS_PER_FRAME,
        "series": len(TYPES),
        "bytes_per_point": round(sum(map(len, frames)) / DISTINCT_FRAMES / POINTS_PER_FRAME, 2),
        "scans": {
            f"{stored:,} stored": _scan(frames * (stored // DISTINCT_FRAMES // 250), repeats)
            for stored in (1_000_000, 4_000_000)
        },
        "newest_us_per_frame": _us_per_frame(frames, newest_of, repeats),
        "decode_us_per_frame": _us_per_frame(frames, decode, repeats),
    }
    _print(results)
    return results


def _frames(count: int) -> list[bytes]:
    values = {"soc": 80.0, "voltage": 398.0, "temperature": 21.0, "current": -12.0}
    walk = random.Random(3)
    points = []
    for tick in range(count * POINTS_PER_FRAME // len(TYPES) + 1):
        for type_ in TYPES:
            values[type_] = round(values[type_] + walk.uniform(-0.3, 0.3), 1)
            points.append(Point("battery", type_, START_NS + tick * STEP_NS, values[type_]))
    return [
        encode_frame(points[at : at + POINTS_PER_FRAME], epoch=1, seq=1 + at)
        for at in range(0, count * POINTS_PER_FRAME, POINTS_PER_FRAME)
    ]


def _scan(frames: list[bytes], repeats: int) -> dict[str, object]:
    span_ns = DISTINCT_FRAMES * POINTS_PER_FRAME // len(TYPES) * STEP_NS
    middle = START_NS + span_ns // 2
    found, all_s = _best(repeats, lambda: _selected(frames, START_NS, START_NS + 2 * span_ns))
    few, part_s = _best(repeats, lambda: _selected(frames, middle, middle + span_ns // 100))
    sample = frames[:DISTINCT_FRAMES]
    same, decode_s = _best(1, lambda: _decoded(sample))
    if same * len(frames) != found * len(sample):
        raise AssertionError(f"select found {found} points, decode {same} of {len(sample)} frames")
    return {
        "frames": len(frames),
        "found": found,
        "scan_s": round(all_s, 3),
        "aim_s": SCAN_AIM_S,
        "met": all_s < SCAN_AIM_S,
        "stored_points_per_s": round(len(frames) * POINTS_PER_FRAME / all_s),
        "found_in_a_hundredth": few,
        "hundredth_s": round(part_s, 3),
        "decode_and_pick_s": round(decode_s * len(frames) / len(sample), 2),
    }


def _selected(frames: list[bytes], from_ns: int, to_ns: int) -> int:
    return sum(len(select(frame, "soc", "", from_ns, to_ns)[0]) for frame in frames)


def _decoded(frames: list[bytes]) -> int:
    return sum(point.type == "soc" for frame in frames for point in decode(frame).points)


def _us_per_frame(frames: list[bytes], read: Callable[[bytes], object], repeats: int) -> float:
    _, seconds = _best(repeats, lambda: sum(1 for frame in frames if read(frame)))
    return round(seconds / len(frames) * 1e6, 1)


def _best(repeats: int, work: Callable[[], int]) -> tuple[int, float]:
    """Return the result and the shortest of several runs: the others measured other work."""
    seconds, result = [], 0
    for _ in range(repeats):
        start = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - start)
    return result, min(seconds)


def _print(results: dict[str, Any]) -> None:
    print(
        f"history_scan: one series of {results['series']} in frames of {POINTS_PER_FRAME}, "
        f"{results['bytes_per_point']} bytes a point; one core"
    )
    print(f"{'':20}{'found':>12}{'scan s':>9}{'aim s':>7}{'1/100 s':>9}{'decode s':>10}")
    for name, scan in results["scans"].items():
        print(
            f"{name:20}{scan['found']:12,}{scan['scan_s']:9.3f}{scan['aim_s']:7.1f}"
            f"{scan['hundredth_s']:9.3f}{scan['decode_and_pick_s']:10.2f}"
        )
    print(
        f"newest of each series: {results['newest_us_per_frame']} us a frame, "
        f"decode {results['decode_us_per_frame']} us"
    )


if __name__ == "__main__":
    run(quick=False)

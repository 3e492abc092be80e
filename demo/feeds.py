"""Where the demonstration's readings come from: simulated vehicles, or a recording."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from backhaul_codec import Point
from backhaul_codec.recordings.mapping import load
from backhaul_codec.recordings.points import RowMapper
from backhaul_codec.recordings.readers import open_recording

from .simulate import Vehicle

_PASSES_A_SECOND = 50
_PASSES_A_BATCH = 25
_BATCHES_A_SECOND = 2
_ROWS_A_BATCH_MAX = 250
_RECORDING_S = 45
_MAPPINGS = Path(__file__).parents[1] / "agent" / "mappings"
# The recordings that come with a mapping: its name, and a series worth a plot.
_KNOWN = {
    "twizy_ev": ("twizy", ("battery", "soc", "")),
    "kit_obd_readings": ("kit", ("obd", "speed", "")),
    "ebike_trips": ("ebike", ("drive", "speed", "")),
    "px4_flight": ("px4", ("cpuload", "load", "sample_log_small")),
}


async def simulated(
    vehicle: Vehicle,
    now_ns: Callable[[], int],
    *,
    passes_a_second: float = _PASSES_A_SECOND,
    passes_a_batch: int = _PASSES_A_BATCH,
) -> AsyncIterator[dict[str, list[Point]]]:
    """Yield a simulated vehicle's readings in real time, for ever; stamps are now's, in ms."""
    loop = asyncio.get_running_loop()
    step_s = 1 / passes_a_second
    due_s = loop.time()
    while True:
        batch: dict[str, list[Point]] = {}
        for _ in range(passes_a_batch):
            due_s += step_s
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            time_ns = now_ns() // 1_000_000 * 1_000_000
            for node, points in vehicle.sample(time_ns, step_s).items():
                batch.setdefault(node, []).extend(points)
        yield batch


def known_recording(path: Path) -> tuple[Path, tuple[str, str, str]] | None:
    """Return the mapping and the series to plot of a recording that comes with them."""
    known = _KNOWN.get(path.stem)
    return known and (_MAPPINGS / f"{known[0]}.toml", known[1])


async def recorded(
    path: Path, mapping: Path, share: int, shares: int
) -> AsyncIterator[dict[str, list[Point]]]:
    """Yield one vehicle's share of a recording, in a hurry: all of it in about 45 s.

    Recorded times are kept. Long recordings are cut off where 500 rows a second were too slow.
    """
    rules = load(mapping)
    with open_recording(path, rules.columns()) as recording:
        mapper = RowMapper(rules, text_only=recording.text_only)
        rows = [
            row.points
            for chunk in recording.chunks()
            for row in mapper.rows(chunk)
            if row.time_ns is not None
        ]
    mine = rows[len(rows) * share // shares : len(rows) * (share + 1) // shares]
    step = min(_ROWS_A_BATCH_MAX, max(1, len(mine) // (_RECORDING_S * _BATCHES_A_SECOND)))
    for start in range(0, len(mine), step):
        await asyncio.sleep(1 / _BATCHES_A_SECOND)
        batch: dict[str, list[Point]] = {}
        for points in mine[start : start + step]:
            for point in points:
                batch.setdefault(point.node, []).append(point)
        yield batch

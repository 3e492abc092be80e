"""Trips and stops beside movingpandas, on planted journeys and on recordings, and what a fix costs.

Modelled: vehicles that stand, drive and halt at 1 Hz with a receiver whose error of 4 m wanders within a minute, and that jumps 500 times as far
once in 500 fixes. Their ways, their stops and the times of both are known. The benchmark gives movingpandas the same fixes after its own
outlier cleaner, and the same limits. Recordings: e-bikes that state how far they went. Not covered: tables, Spark.
movingpandas weighs 750 MB and takes 10 s to load, so the project does not install it: `pip install movingpandas`.
"""

from __future__ import annotations

import importlib
import random
import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from tests.support.place_rows import SETTINGS, rows_of
from tests.support.recordings import data_directory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Fixes = tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]

NORTH, EAST = 1 / 111_200, 1 / 74_600
JITTER_M, JUMP_M, WANDERS = 4, 2000, 0.98


@dataclass(slots=True)
class Found:
    """Metres of ways, and stops as (from, to) in seconds."""

    metres: float
    stops: list[tuple[float, float]]


def run(*, quick: bool) -> dict[str, object]:
    """Measure and print."""
    journeys = [_planted(seed) for seed in range(2 if quick else 8)]
    start = time.process_time()
    ours = [_ours(fixes) for fixes, _ in journeys]
    cost_us = (time.process_time() - start) / sum(len(f[0]) for f, _ in journeys) * 1e6
    rows = [_row("places, planted", [truth for _, truth in journeys], ours)]
    theirs = _theirs([fixes for fixes, _ in journeys])
    if theirs:
        rows.append(_row("movingpandas, planted", [truth for _, truth in journeys], theirs))
    recorded = _recorded(4 if quick else 36)
    if recorded:
        said = [Found(metres, []) for _, metres in recorded]
        rows.append(_row("places, e-bikes", said, [_ours(fixes) for fixes, _ in recorded]))
        others = _theirs([fixes for fixes, _ in recorded], stops=False)
        if others:
            rows.append(_row("movingpandas, e-bikes", said, others))
    for row in rows:
        print(
            "; ".join(
                f"{name}: {value}" if name != "what" else str(value) for name, value in row.items()
            )
        )
    print(f"a fix costs {cost_us:.1f} us of one core")
    if not theirs:
        print("movingpandas is not installed: nothing to compare with")
    return {"fix_us": cost_us, "rows": rows}


def _row(name: str, truth: Sequence[Found], found: Sequence[Found]) -> dict[str, Any]:
    off = [abs(one.metres / true.metres - 1) for one, true in zip(found, truth, strict=True)]
    stops = [stop for true in truth for stop in true.stops]
    met = missed = 0
    late: list[float] = []
    for one, true in zip(found, truth, strict=True):
        for begin, end in true.stops:
            same = [stop for stop in one.stops if stop[0] < end and stop[1] > begin]
            met += len(same) == 1
            missed += not same
            late += [abs(stop[0] - begin) + abs(stop[1] - end) for stop in same[:1]]
    return {
        "what": name,
        "distance off, median": f"{100 * float(np.median(off)):.2f} %",
        "worst": f"{100 * max(off):.1f} %",
        "stops": len(stops),
        "found as one": met,
        "missed": missed,
        "told": sum(len(one.stops) for one in found),
        "edges off, median": f"{float(np.median(late)):.0f} s" if late else "",
    }


def _planted(seed: int) -> tuple[Fixes, Found]:
    dice = random.Random(seed)
    north, s, metres = 0.0, 0, 0.0
    at: list[float] = []
    stops: list[tuple[float, float]] = []
    for leg in range(9):
        if leg % 2 == 0:
            lasts = dice.choice((400, 900, 1800))
            stops.append((s, s + lasts))
            at += [north] * lasts
        else:
            for speed, lasts in ((dice.uniform(5, 20), 200), (0.0, 60), (dice.uniform(5, 20), 200)):
                at += [north + speed * n for n in range(lasts)]
                north += speed * lasts
                metres += speed * lasts
        s = len(at)
    jitter = np.random.default_rng(seed).normal(0, JITTER_M, (2, len(at)))
    for n in range(1, len(at)):  # a receiver's error wanders
        jitter[:, n] = WANDERS * jitter[:, n - 1] + (1 - WANDERS**2) ** 0.5 * jitter[:, n]
    jumps = np.random.default_rng(seed + 1).random(len(at)) < 0.002
    lat = 48 + (np.array(at) + jitter[0] + jumps * JUMP_M) * NORTH
    lon = 11 + jitter[1] * EAST
    return (np.arange(len(at)) * 1_000_000_000, lat, lon), Found(metres, stops)


def _ours(fixes: Fixes) -> Found:
    times, lat, lon = fixes
    rows = rows_of({"lat": (times, lat), "lon": (times, lon)})
    stops = [(row["start_ns"] / 1e9, row["end_ns"] / 1e9) for row in rows["stops"]]
    return Found(sum(row["distance_m"] for row in rows["trips"]), stops)


def _theirs(journeys: Sequence[Fixes], *, stops: bool = True) -> list[Found]:
    """Return the same by movingpandas, nothing where it is not installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # By name: types and styles are checked where none of them is installed.
            names = ("geopandas", "movingpandas", "pandas")
            geopandas, movingpandas, pd = map(importlib.import_module, names)
    except ImportError:
        return []
    found = []
    for times, lat, lon in journeys:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            points = geopandas.points_from_xy(lon, lat)
            frame = geopandas.GeoDataFrame(
                {"t": pd.to_datetime(times)}, geometry=points, crs=4326
            ).set_index("t")
            whole = movingpandas.Trajectory(frame, 1)
            whole = movingpandas.OutlierCleaner(whole).clean(
                v_max=SETTINGS.speed_max_mps, units=("m", "s")
            )
            detector = movingpandas.TrajectoryStopDetector(whole)
            lasts, reach = pd.Timedelta(seconds=SETTINGS.stop_s), 2 * SETTINGS.stop_m
            parts = (
                detector.get_stop_segments(max_diameter=reach, min_duration=lasts) if stops else []
            )
            halted = [(p.get_start_time(), p.get_end_time()) for p in parts]
            metres = whole.get_length() - sum(p.get_length() for p in parts)
        found.append(Found(metres, [(a.timestamp(), b.timestamp()) for a, b in halted]))
    return found


def _recorded(most: int) -> list[tuple[Fixes, float]]:
    directory = data_directory()
    if directory is None:
        print("no recordings beside the repository")
        return []
    frame = pq.read_table(directory / "ebike_trips.parquet").to_pandas()
    found = []
    for _, trip in list(frame.dropna(subset=["position_lat"]).groupby("trip"))[:most]:
        one = trip.sort_values("t_ns").drop_duplicates("t_ns")
        columns = [one[name].to_numpy() for name in ("t_ns", "position_lat", "position_long")]
        metres = float(one["distance"].max() - one["distance"].min())
        found.append(((columns[0], columns[1], columns[2]), metres))
    return found

"""Trips of recordings, held against the distances that these state themselves; skipped where they are not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from tests.support.place_rows import rows_of
from tests.support.recordings import data_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backhaul_spark.places.earth import Series

DIRECTORY = data_directory()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(DIRECTORY is None, reason="no recordings beside the repository"),
]


def recorded(file: str, lat: str, lon: str) -> Iterator[tuple[Any, dict[str, Series]]]:
    """Yield each trip's columns, and its positions."""
    assert DIRECTORY is not None
    frame = pq.read_table(DIRECTORY / file).to_pandas().dropna(subset=["t_ns", lat, lon])
    frame["t_ns"] = frame["t_ns"].astype("int64")
    for _, trip in frame.groupby("trip"):
        whole = trip.sort_values("t_ns", kind="stable").drop_duplicates("t_ns", keep="last")
        times = whole["t_ns"].to_numpy()
        yield whole, {"lat": (times, whole[lat].to_numpy()), "lon": (times, whole[lon].to_numpy())}


def test_e_bikes_went_as_far_as_they_say_themselves() -> None:
    ways, said = [], []
    for trip, readings in recorded("ebike_trips.parquet", "position_lat", "position_long"):
        ways.append(sum(row["distance_m"] for row in rows_of(readings)["trips"]))
        said.append(trip["distance"].max() - trip["distance"].min())
    off = np.abs(np.array(ways) / said - 1)
    assert len(ways) == 36
    # The two worst have minutes without positions, in which their own counters stood.
    assert np.median(off) < 0.006
    assert np.sort(off)[-2] < 0.07
    assert sum(ways) == pytest.approx(sum(said), rel=0.01)


def test_a_twizy_went_as_far_as_its_receiver_s_speed_says() -> None:
    ways, said = [], []
    for trip, readings in recorded("twizy_ev.parquet", "LAT", "LON"):
        ways.append(sum(row["distance_m"] for row in rows_of(readings)["trips"]))
        steps_s = np.minimum(np.diff(trip["t_ns"].to_numpy()) / 1e9, 10)
        said.append(float((trip["GpsSpeed"].to_numpy()[:-1] / 3.6 * steps_s).sum()))
    assert sum(ways) == pytest.approx(sum(said), rel=0.03)

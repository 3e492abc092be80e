"""Trips and stops of positions: what is a jump, a halt, a stop and a gap; and how far a way is."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from geographiclib.geodesic import Geodesic  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from backhaul_spark.places.earth import arc_m, chord_m, places, wrapped
from backhaul_spark.places.fold import VehicleFold
from tests.support.place_rows import SETTINGS, rows_of, series

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backhaul_spark.places.earth import Series

# A fix: seconds, metres to the north and to the east.
Fix = tuple[float, float, float]
HOME = (48.0, 11.0)
NORTH, EAST = 1 / 111_200, 1 / 74_600


def positions(fixes: Sequence[Fix], home: tuple[float, float] = HOME) -> dict[str, Series]:
    lats = series((s, home[0] + north * NORTH) for s, north, _ in fixes)
    lons = series((s, wrapped(home[1] + east * EAST)) for s, _, east in fixes)
    return {"lat": lats, "lon": lons}


def stand(s: float, until_s: float, north: float = 0, east: float = 0) -> list[Fix]:
    return [(float(t), north, east) for t in range(int(s), int(until_s), 5)]


def drive(s: float, until_s: float, north: float, to: float, every_s: int = 5) -> list[Fix]:
    times = range(int(s), int(until_s), every_s)
    return [(float(t), north + (to - north) * (t - s) / (until_s - s), 0.0) for t in times]


def there_and_back() -> list[Fix]:
    """Stand 10 min, drive 3 km in 10 min, stand 30 min, drive back, stand 10 min."""
    return [
        *stand(0, 600),
        *drive(600, 1200, 0, 3000),
        *stand(1200, 3000, 3000),
        *drive(3000, 3600, 3000, 0),
        *stand(3600, 4200),
    ]


def told(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


def seconds(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["start_ns"] / 1e9, row["end_ns"] / 1e9) for row in rows]


@pytest.mark.parametrize(
    ("km", "relative"), [(0.01, 1e-7), (1, 1e-7), (10, 1e-7), (100, 2e-7), (1000, 2e-5)]
)
def test_distances_are_those_of_geodesics_on_the_ellipsoid(km: float, relative: float) -> None:
    dice = random.Random(1)
    for _ in range(200):
        lat, lon = dice.uniform(-89.9, 89.9), dice.uniform(-180, 180)
        there = Geodesic.WGS84.Direct(lat, lon, dice.uniform(0, 360), km * 1000)
        a, b = places(np.array([lat, there["lat2"]]), np.array([lon, there["lon2"]]))
        found = arc_m(float(np.sqrt(((a - b) ** 2).sum())))
        # Below a millimetre degrees have no more digits.
        assert found == pytest.approx(km * 1000, rel=relative, abs=1e-6)


@given(st.floats(0, 19_000_000))
def test_a_chord_is_as_long_as_its_arc_says(metres: float) -> None:
    assert arc_m(chord_m(metres)) == pytest.approx(metres, rel=1e-9, abs=1e-6)


def test_a_way_there_and_back_is_two_trips_and_three_stops() -> None:
    found = rows_of(positions(there_and_back()))
    assert told(found["stops"], "ended") == [("trip",), ("trip",), ("open",)]
    assert told(found["trips"], "began", "ended") == [("stop", "stop"), ("stop", "stop")]
    for trip in found["trips"]:
        assert trip["distance_m"] == pytest.approx(3000, rel=0.02)
        assert trip["speed_max_mps"] == pytest.approx(5, rel=0.01)
        assert trip["idle_s"] == 0
    [first, middle, last] = seconds(found["stops"])
    assert first == (0, pytest.approx(600, abs=10))
    assert middle == (pytest.approx(1200, abs=10), pytest.approx(3000, abs=10))
    assert last[1] == 4195
    middle_row = found["stops"][1]
    assert middle_row["lat"] == pytest.approx(HOME[0] + 3000 * NORTH, abs=5 * NORTH)


def test_a_receiver_that_jumps_moves_no_vehicle() -> None:
    clean = positions(there_and_back())
    jumps: list[Fix] = [(302.5, 90_000, 0), (902.5, 0, 70_000), (1502.5, -400_000, 0)]
    odd = positions([*there_and_back(), *jumps])
    assert rows_of(odd) == rows_of(clean)


def test_what_is_no_place_on_earth_is_left_out() -> None:
    clean = positions(there_and_back())
    lat, lon = dict(zip(*clean["lat"], strict=True)), dict(zip(*clean["lon"], strict=True))
    for s, north, east in ((12.5, 0.0, 0.0), (17.5, 91.0, 11.0), (22.5, 48.0, 500.0)):
        lat[round(s * 1e9)], lon[round(s * 1e9)] = north, east
    odd = {
        role: series((int(t) / 1e9, value) for t, value in of.items())
        for role, of in (("lat", lat), ("lon", lon))
    }
    assert rows_of(odd) == rows_of(clean)


def test_a_vehicle_that_was_carried_away_unseen_is_believed_after_a_while() -> None:
    fixes = [*stand(0, 600), *stand(605, 1200, 500_000)]
    found = rows_of(positions(fixes))
    assert told(found["stops"], "ended") == [("gap",), ("open",)]
    assert found["trips"] == []
    assert seconds(found["stops"]) == [(0, 595), (605, 1195)]


def test_a_first_fix_that_is_wrong_costs_nothing_but_itself() -> None:
    found = rows_of(
        positions([(0.0, 900_000.0, 0.0), *[(s + 5, n, e) for s, n, e in there_and_back()]])
    )
    expected = rows_of(positions(there_and_back()))
    assert told(found["trips"], "distance_m") == told(expected["trips"], "distance_m")
    assert told(found["stops"], "fixes") == told(expected["stops"], "fixes")


def test_a_clock_that_ran_ahead_for_a_while_moves_no_vehicle() -> None:
    """Its fixes lie between those of half an hour later, kilometres away."""
    clean = there_and_back()
    ahead = [(s + 1800.5, north, east) for s, north, east in drive(900, 990, 20_000, 20_450)]
    assert rows_of(positions([*clean, *ahead])) == rows_of(positions(clean))


def test_jitter_makes_no_trip_and_no_way() -> None:
    dice = random.Random(7)
    jitter = [(s, dice.gauss(0, 8), dice.gauss(0, 8)) for s, _, _ in stand(0, 8 * 3600)]
    excursion = [(20_000 + 2.5 + n, 75.0, 0.0) for n in range(30)]  # as houses reflect it
    found = rows_of(positions(sorted([*jitter, *excursion])))
    assert found["trips"] == []
    assert seconds(found["stops"]) == [(0, 8 * 3600 - 5)]
    assert found["stops"][0]["lat"] == pytest.approx(HOME[0], abs=1 * NORTH)


def test_a_halt_is_no_stop_and_adds_no_way() -> None:
    dice = random.Random(5)
    halt = [(1000.0 + n, 2000 + dice.gauss(0, 1), dice.gauss(0, 1)) for n in range(120)]
    fixes = [*stand(0, 600), *drive(600, 1000, 0, 2000), *halt, *drive(1120, 1520, 2000, 4000)]
    found = rows_of(positions([*fixes, *stand(1520, 2000, 4000)]))
    [trip] = found["trips"]
    assert trip["distance_m"] == pytest.approx(4000, rel=0.01)
    assert trip["idle_s"] == pytest.approx(120, abs=6)


def test_a_vehicle_that_is_off_stands_where_it_was() -> None:
    fixes = [*drive(0, 600, 0, 3000), *stand(600, 630, 3000), *drive(30_000, 30_600, 3000, 6000)]
    found = rows_of(positions(fixes))
    assert told(found["trips"], "began", "ended") == [("start", "stop"), ("stop", "open")]
    [(start, end)] = seconds(found["stops"])
    assert (start, end) == (pytest.approx(595, abs=10), pytest.approx(30_000, abs=10))


def test_a_way_that_nobody_saw_ends_a_trip_and_is_none_of_its_own() -> None:
    fixes = [*drive(0, 600, 0, 3000), *drive(5000, 5600, 20_000, 23_000)]
    found = rows_of(positions(fixes))
    assert told(found["trips"], "began", "ended") == [("start", "gap"), ("gap", "open")]
    assert found["stops"] == []
    assert sum(row["distance_m"] for row in found["trips"]) == pytest.approx(5950, rel=0.001)


def test_a_vehicle_that_is_moved_aside_stands_on() -> None:
    fixes = [
        *stand(0, 600),
        *drive(600, 620, 0, 70),
        *stand(620, 1500, 70),
        *drive(1500, 2100, 70, 3000),
    ]
    found = rows_of(positions(fixes))
    assert told(found["stops"], "ended") == [("trip",)]
    assert seconds(found["stops"]) == [(0, pytest.approx(1500, abs=10))]
    [trip] = found["trips"]
    assert trip["start_ns"] / 1e9 == pytest.approx(1500, abs=10)


def test_the_meridian_of_180_degrees_and_the_pole_are_places_like_others() -> None:
    at_sea = rows_of(positions([(s, n, n) for s, n, _ in there_and_back()], (0.5, 179.99)))
    assert [trip["distance_m"] > 3000 for trip in at_sea["trips"]] == [True, True]
    middle = positions(there_and_back(), (-89.99, 0.0))
    assert [round(t["distance_m"] / 100) for t in rows_of(middle)["trips"]] == [30, 30]
    jitter = [(s, 0.0, random.Random(int(s)).gauss(0, 5)) for s, _, _ in stand(0, 600)]
    [stop] = rows_of(positions(jitter, (10.0, 180.0)))["stops"]
    assert abs(stop["lon"]) == pytest.approx(180, abs=3 * EAST)


def test_latitude_and_longitude_that_come_apart_are_one_position() -> None:
    whole = positions(there_and_back())
    apart = whole | {"lon": (whole["lon"][0] + 200_000_000, whole["lon"][1])}
    found, expected = rows_of(apart), rows_of(whole)
    assert told(found["trips"], "distance_m") == told(expected["trips"], "distance_m")
    far = whole | {"lon": (whole["lon"][0] + 2_000_000_000, whole["lon"][1])}
    assert rows_of(far)["trips"] == []


@pytest.mark.parametrize(
    ("kind", "value", "wh"),
    [
        ("power", lambda s: 1000.0, 1000 * 600 / 3600),
        ("counter", lambda s: 50 + s / 6 if s < 1000 else (s - 1000) / 6, 99.2),
        ("level", lambda s: 5000 - s / 6, 100.0),
    ],
)
def test_energy_is_that_of_the_way(kind: Any, value: Any, wh: float) -> None:
    settings = replace(SETTINGS, energy="battery.power", energy_kind=kind)
    readings = positions(there_and_back()) | {
        "energy": series((float(s), value(s)) for s in range(0, 4200, 5))
    }
    found = rows_of(readings, settings)
    assert found["trips"][0]["energy_wh"] == pytest.approx(wh, rel=0.03)
    assert found["stops"][1]["energy_wh"] == pytest.approx(
        wh * 3 if kind != "counter" else 300, rel=0.03
    )
    assert rows_of(positions(there_and_back()), settings)["trips"][0]["energy_wh"] is None


def test_an_engine_that_runs_at_a_stop_idles() -> None:
    settings = replace(SETTINGS, running="engine.rpm")
    runs = [(float(s), 800.0 if 600 <= s < 1500 else 0.0) for s in range(0, 4200, 5)]
    found = rows_of(positions(there_and_back()) | {"running": series(runs)}, settings)
    assert told(found["stops"], "idle_s")[0] == (pytest.approx(0, abs=10),)
    assert told(found["stops"], "idle_s")[1] == (pytest.approx(300, abs=15),)
    assert rows_of(positions(there_and_back()))["stops"][1]["idle_s"] is None


def test_the_state_is_bounded() -> None:
    vehicle = VehicleFold()
    vehicle.take(positions(there_and_back()), lambda fixes, named: [], SETTINGS)  # type: ignore[arg-type]
    assert len(vehicle.text()) < 3000
    assert VehicleFold.of(vehicle.text()).text() == vehicle.text()

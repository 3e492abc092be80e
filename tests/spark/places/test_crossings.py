"""Fences: which fixes are inside, when an edge is crossed, and which files of fences are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backhaul_spark.errors import OptionError
from backhaul_spark.places.crossings import Crossings, Fence
from backhaul_spark.places.earth import places, wrapped
from backhaul_spark.places.fence_file import read_fences
from backhaul_spark.places.fence_shapes import Shapes
from backhaul_spark.places.fixes import Fix

SQUARE = [[48.0, 11.0], [48.0, 11.01], [48.01, 11.01], [48.01, 11.0]]
TOML = """
[fences.depot]
lat = 48.0
lon = 11.0
radius_m = 100
dwell_s = 60

[fences."the yard"]
polygon = [[48.0, 11.0], [48.0, 11.01], [48.01, 11.01], [48.01, 11.0]]
"""


def fix(s: float, lat: float, lon: float) -> Fix:
    x, y, z = places(np.array([lat]), np.array([lon]))[0].tolist()
    return Fix(round(s * 1e9), lat, lon, x, y, z)


def file_of(tmp_path: Path, text: str | dict[str, Any], name: str = "fences.toml") -> str:
    path = tmp_path / name
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return str(path)


def geojson(*features: tuple[str | None, dict[str, Any], dict[str, Any]]) -> dict[str, Any]:
    return {
        "type": "FeatureCollection",
        "features": [
            {"type": "Feature", "properties": {"name": name, **said}, "geometry": geometry}
            for name, geometry, said in features
        ],
    }


def polygon(*rings: list[list[float]]) -> dict[str, Any]:
    """Return a GeoJSON polygon of rings that are given latitude first."""
    return {"type": "Polygon", "coordinates": [[each[::-1] for each in ring] for ring in rings]}


def insides(fences: tuple[Fence, ...], *at: tuple[float, float]) -> dict[str, list[bool]]:
    names = {fence.name for fence in fences}
    found = Shapes(fences).inside([fix(n, *each) for n, each in enumerate(at)], names)
    return {fence.name: list(sides) for fence, sides in found}


def test_circles_and_polygons_of_toml_hold_what_is_inside(tmp_path: Path) -> None:
    fences = read_fences(file_of(tmp_path, TOML), 300)
    assert [(each.name, each.dwell_s) for each in fences] == [("depot", 60), ("the yard", 300)]
    found = insides(fences, (48.0008, 11.0), (48.001, 11.0), (47.9999, 11.005), (48.005, 11.005))
    assert found == {
        "depot": [True, False, False, False],
        "the yard": [True, True, False, True],
    }


def test_geojson_is_read_as_other_tools_write_it(tmp_path: Path) -> None:
    hole = [[48.004, 11.004], [48.004, 11.006], [48.006, 11.006], [48.006, 11.004]]
    ring = [*SQUARE, SQUARE[0]]
    far = [[each[0] + 1, each[1]] for each in ring]
    two = {
        "type": "MultiPolygon",
        "coordinates": [polygon(of)["coordinates"] for of in (ring, far)],
    }
    point = {"type": "Point", "coordinates": [11.0, 48.0]}
    text = geojson(
        ("holed", polygon(ring, [*hole, hole[0]]), {"dwell_s": 5}),
        ("two", two, {}),
        ("circle", point, {"radius_m": 50}),
    )
    fences = read_fences(file_of(tmp_path, text, "fences.geojson"), 300)
    assert insides(fences, (48.005, 11.005), (48.002, 11.002), (49.005, 11.005)) == {
        "circle": [False, False, False],
        "holed": [False, True, False],
        "two": [True, True, True],
    }


def test_a_polygon_across_180_degrees_holds_both_sides(tmp_path: Path) -> None:
    text = "[fences.atoll]\npolygon = [[-1, 179], [-1, -179], [1, -179], [1, 179]]"
    fences = read_fences(file_of(tmp_path, text), 300)
    at = [(0.0, lon) for lon in (179.5, -179.5, 180.0, -180.0, 178.5, -178.5, 0.0)]
    assert insides(fences, *at) == {"atoll": [True, True, True, True, False, False, False]}


def test_a_fence_that_is_far_away_is_not_looked_at_and_none_is_missed() -> None:
    """Held against every fence being looked at: random circles and polygons, random fixes."""
    dice = np.random.default_rng(3)
    fences, shapes = [], []
    for number in range(60):
        lat, lon = dice.uniform(-85, 85), dice.uniform(-180, 180)
        if number % 2:
            fence = Fence(
                name=str(number), dwell_s=0, centre=(lat, lon), radius_m=dice.uniform(1e3, 9e5)
            )
        else:
            size = dice.uniform(0.01, 4)
            ring = tuple(
                (lon + x * size, lat + y * size)
                for x, y in ((0, 0), (1, 0), (1, 1), (0, 1), (0, 0))
            )
            fence = Fence(name=str(number), dwell_s=0, polygons=((ring,),))
        fences.append(fence)
        shapes.append((lat, lon))
    hits = 0
    for lat, lon in shapes:
        near = [(lat + dice.normal(0, 3), wrapped(lon + dice.normal(0, 3))) for _ in range(5)]
        some = [fix(n, max(-90.0, min(90.0, at[0])), at[1]) for n, at in enumerate(near)]
        found = {f.name: list(s) for f, s in Shapes(fences).inside(some, set())}
        for fence in fences:
            alone = Shapes([fence])._fences[0]
            lats, lons = np.array([f.lat for f in some]), np.array([f.lon for f in some])
            sides = alone.inside(lats, lons, np.array([(f.x, f.y, f.z) for f in some])).tolist()
            hits += any(sides)
            assert found.get(fence.name, [False] * 5) == sides
    assert hits > 20


def crossed(
    fence: Fence, *sides: tuple[float, bool], confirm_s: float = 10
) -> list[tuple[Any, ...]]:
    """Return the events of fixes (s, inside), given one after the other."""
    crossings, found = Crossings(), []
    for s, side in sides:
        found += crossings.take([fix(s, 48, 11)], [(fence, [side])], confirm_s)
    together = Crossings().take(
        [fix(s, 48, 11) for s, _ in sides], [(fence, [side for _, side in sides])], confirm_s
    )
    assert together == found
    return [(row["kind"], row["time_ns"] / 1e9, row["inside_s"]) for row in found]


DEPOT = Fence(name="depot", dwell_s=30, centre=(48, 11), radius_m=10)


def test_a_vehicle_enters_dwells_and_leaves() -> None:
    sides = [(float(s), 20 <= s < 90) for s in range(0, 150, 5)]
    assert crossed(DEPOT, *sides) == [("entered", 20, None), ("dwelt", 50, 30), ("left", 90, 70)]


def test_jitter_at_the_edge_crosses_nothing() -> None:
    sides = [(float(s), s % 10 == 0) for s in range(0, 100, 5)]
    assert crossed(DEPOT, *sides) == []
    inside = [(float(s), s < 50 or s % 10 == 0) for s in range(0, 300, 5)]
    assert crossed(DEPOT, *inside) == [("entered", 0, None), ("dwelt", 30, 30)]


def test_a_crossing_says_what_came_before_it() -> None:
    crossings = Crossings()
    fixes = [fix(s, 48, 11) for s in (0, 300, 600, 900)]
    [event] = crossings.take(fixes[:3], [(DEPOT, [False, True, True])], 10)[:1]
    assert (event["time_ns"], event["before_ns"]) == (300 * 10**9, 0)
    assert crossings.take(fixes[3:], [(DEPOT, [False])], 0)[0]["before_ns"] == 600 * 10**9


def test_of_a_fence_that_was_left_nothing_is_kept() -> None:
    crossings = Crossings()
    crossings.take([fix(s, 48, 11) for s in (0, 20)], [(DEPOT, [True, True])], 10)
    assert crossings.near() == {"depot"}
    crossings.take([fix(s, 48, 11) for s in (40, 60)], [(DEPOT, [False, False])], 10)
    assert crossings.near() == set()


CROSSED = [[48.0, 11.0], [48.01, 11.01], [48.0, 11.01], [48.01, 11.0]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[fences.a]\nlat = 48", "'lon': expected lat, lon and radius_m, or polygon"),
        ("[fences.a]\nlat = 98\nlon = 1\nradius_m = 1", "latitude=98: expected degrees, -90 to 90"),
        ("[fences.a]\nlat = 48\nlon = 1\nradius_m = 0", "radius_m=0: expected metres, above 0"),
        (
            "[fences.a]\nlat = 48\nlon = 1\nradius_m = 1\nname = 'b'",
            "'name': expected one of dwell_s",
        ),
        (f"[fences.a]\npolygon = {CROSSED}", "expected edges that do not cross"),
        ("[fences.a]\npolygon = [[1, 2], [2, 3]]", "expected three corners or more"),
        ("[fences.a]\npolygon = [[1, 2], [2, 3], [3, 4]]", "expected edges that do not cross"),
        ("[fences.a]\npolygon = [[1, 2], 3, [3, 4]]", "expected [latitude, longitude]"),
        (
            "[fences.a]\npolygon = [[1, 2], [2, 3], [1, 3]]\nlat = 1",
            "expected either polygon, or lat",
        ),
        (
            "[fences.a]\nlat = 48\nlon = 1\nradius_m = 1\ndwell_s = -1",
            "dwell_s=-1: expected seconds",
        ),
        ("[fence.a]\nlat = 48", "'fence': expected one of fences"),
        ("fences = 3", "expected tables [fences.NAME]"),
        ("", "expected at least one fence"),
        ("[fences", "expected TOML"),
    ],
)
def test_a_bad_file_of_fences_is_refused_with_the_fence_and_the_reason(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(OptionError) as refused:
        read_fences(file_of(tmp_path, text), 300)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "expected JSON"),
        ({"type": "Point", "coordinates": [1, 2]}, "expected a GeoJSON FeatureCollection"),
        (geojson((None, polygon(SQUARE), {})), "expected a text `name`"),
        (
            geojson(("a", polygon(SQUARE), {}), ("a", polygon(SQUARE), {})),
            "a name that no other fence has",
        ),
        (
            geojson(("a", {"type": "LineString", "coordinates": []}, {})),
            "expected Polygon, MultiPolygon",
        ),
        (
            geojson(("a", {"type": "Point", "coordinates": [1, 2]}, {})),
            "radius_m=None: expected metres",
        ),
        (
            geojson(("a", {"type": "Point", "coordinates": None}, {})),
            "expected [longitude, latitude]",
        ),
        (
            geojson(("a", {"type": "Polygon", "coordinates": [7]}, {})),
            "expected a list of coordinates",
        ),
        (
            geojson(("a", {"type": "Polygon", "coordinates": []}, {})),
            "expected rings of coordinates",
        ),
        ({"type": "FeatureCollection", "features": [3]}, "expected properties and a geometry"),
    ],
)
def test_bad_geojson_is_refused_with_the_fence_and_the_reason(
    tmp_path: Path, text: str | dict[str, Any], said: str
) -> None:
    with pytest.raises(OptionError) as refused:
        read_fences(file_of(tmp_path, text, "fences.json"), 300)
    assert said in str(refused.value)


def test_no_file_no_fences_and_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    assert read_fences(None, 300) == ()
    with pytest.raises(OptionError, match="No such file"):
        read_fences(str(tmp_path / "nowhere.toml"), 300)

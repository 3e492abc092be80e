"""Read fences as an operator writes them: TOML, or GeoJSON as other tools export it.

A bad file is refused whole, with the fence and the reason: a fence that is silently not there raises no event.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import shapely  # type: ignore[import-untyped]

from backhaul_codec.strict.toml import TomlError, read_toml
from backhaul_spark.config_file import refuse_unknown
from backhaul_spark.errors import OptionError
from backhaul_spark.places.crossings import Fence
from backhaul_spark.places.earth import wrapped

FENCES_MAX = 10_000
NAME_MAX = 200
RADIUS_MAX_M = 1_000_000.0
_TOML_KEYS = ("lat", "lon", "radius_m", "polygon", "dwell_s")
Ring = tuple[tuple[float, float], ...]


def read_fences(path: str | None, dwell_s: float) -> tuple[Fence, ...]:
    """Return the fences of a file by name, none without one.

    Args:
        path: `.geojson` or `.json` is GeoJSON, everything else TOML.
        dwell_s: of fences that do not say it.

    Raises:
        OptionError: no such file, or a fence in it that cannot be one.
    """
    if path is None:
        return ()
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no UTF-8"
        raise OptionError("--fences", path, f"a readable file ({reason})") from error
    geojson = path.lower().endswith((".geojson", ".json"))
    found: dict[str, Fence] = {}
    for fence in (_geojson if geojson else _toml)(path, text, dwell_s):
        if fence.name in found:
            raise OptionError(path, fence.name, "a name that no other fence has")
        found[fence.name] = fence
    if not found:
        raise OptionError("--fences", path, "at least one fence")
    if len(found) > FENCES_MAX:
        raise OptionError("--fences", path, f"at most {FENCES_MAX} fences")
    return tuple(found[name] for name in sorted(found))


def _toml(path: str, text: str, dwell_s: float) -> Iterator[Fence]:
    try:
        values = read_toml(text)
    except TomlError as error:
        raise OptionError("--fences", path, f"TOML: {error}") from error
    refuse_unknown(values, ("fences",), path)
    fences = values.get("fences", {})
    if not isinstance(fences, dict):
        raise OptionError(path, "fences", "tables [fences.NAME]")
    for name, said in fences.items():
        where = f"{path}: [fences.{name}]"
        if not isinstance(said, dict):
            raise OptionError(path, name, f"a table [fences.{name}]")
        refuse_unknown(said, _TOML_KEYS, where)
        facts = _facts(where, name, said, dwell_s)
        if "polygon" in said:
            if "radius_m" in said or "lat" in said or "lon" in said:
                raise OptionError(where, "polygon", "either polygon, or lat, lon and radius_m")
            points = _points(where, said["polygon"], latitude_first=True)
            yield Fence(**facts, polygons=(_polygon(where, [points]),))
        else:
            for key in ("lat", "lon", "radius_m"):
                if key not in said:
                    raise OptionError(where, key, "lat, lon and radius_m, or polygon")
            yield _circle(where, facts, (said["lat"], said["lon"]), said["radius_m"])


def _geojson(path: str, text: str, dwell_s: float) -> Iterator[Fence]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OptionError("--fences", path, f"JSON: {error}") from error
    if not isinstance(values, dict) or values.get("type") not in ("Feature", "FeatureCollection"):
        raise OptionError("--fences", path, "a GeoJSON FeatureCollection")
    features = [values] if values["type"] == "Feature" else values.get("features")
    if not isinstance(features, list):
        raise OptionError(path, "features", "a list")
    for number, feature in enumerate(features):
        where = f"{path}: feature {number}"
        said = feature.get("properties") if isinstance(feature, dict) else None
        geometry = feature.get("geometry") if isinstance(feature, dict) else None
        if not isinstance(said, dict) or not isinstance(geometry, dict):
            raise OptionError(where, feature, "properties and a geometry")
        name = said.get("name", feature.get("id"))
        if not isinstance(name, str):
            raise OptionError(where, name, "a text `name` among its properties")
        where = f"{where} ({name})"
        facts = _facts(where, name, said, dwell_s)
        kind, coordinates = geometry.get("type"), geometry.get("coordinates")
        if kind == "Point":
            point = _points(where, [coordinates], latitude_first=False)[0]
            yield _circle(where, facts, (point[1], point[0]), said.get("radius_m"))
        elif kind in ("Polygon", "MultiPolygon") and isinstance(coordinates, list):
            parts = [coordinates] if kind == "Polygon" else coordinates
            if not parts or not all(isinstance(part, list) and part for part in parts):
                raise OptionError(where, kind, "rings of coordinates")
            rings = [
                [_points(where, ring, latitude_first=False) for ring in part] for part in parts
            ]
            yield Fence(**facts, polygons=tuple(_polygon(where, each) for each in rings))
        else:
            expected = "Polygon, MultiPolygon, or Point with a property radius_m"
            raise OptionError(where, kind, expected)


def _facts(where: str, name: str, said: Mapping[str, Any], dwell_s: float) -> dict[str, Any]:
    if not 0 < len(name) <= NAME_MAX:
        raise OptionError(where, name[:NAME_MAX], f"a name of 1 to {NAME_MAX} characters")
    found = said.get("dwell_s", dwell_s)
    if not _is_number(found) or found < 0:
        raise OptionError(f"{where}: dwell_s", found, "seconds, 0 or more")
    return {"name": name, "dwell_s": float(found)}


def _circle(where: str, facts: Mapping[str, Any], centre: tuple[Any, Any], radius_m: Any) -> Fence:
    lat, lon = centre
    _require_place(where, lat, lon)
    if not _is_number(radius_m) or not 0 < radius_m <= RADIUS_MAX_M:
        raise OptionError(
            f"{where}: radius_m", radius_m, f"metres, above 0, up to {RADIUS_MAX_M:g}"
        )
    return Fence(**facts, centre=(float(lat), float(lon)), radius_m=float(radius_m))


def _points(where: str, said: Any, *, latitude_first: bool) -> Ring:
    if not isinstance(said, list):
        raise OptionError(where, said, "a list of coordinates")
    found = []
    for each in said:
        if not isinstance(each, list) or len(each) < 2:
            expected = "[latitude, longitude]" if latitude_first else "[longitude, latitude]"
            raise OptionError(where, each, expected)
        lat, lon = (each[0], each[1]) if latitude_first else (each[1], each[0])
        _require_place(where, lat, lon)
        found.append((float(lon), float(lat)))
    return tuple(found)


def _polygon(where: str, rings: list[Ring]) -> tuple[Ring, ...]:
    """Return the rings, each closed and with its longitudes as one run, also across 180 degrees."""
    first = rings[0][0][0] if rings[0] else 0.0
    whole = tuple(_unwound(ring, first) for ring in rings)
    if any(len(ring) < 4 for ring in whole):
        raise OptionError(where, "polygon", "three corners or more")
    shape = shapely.Polygon(whole[0], whole[1:])
    if not shape.is_valid:
        raise OptionError(
            where, "polygon", f"edges that do not cross ({shapely.is_valid_reason(shape)})"
        )
    return whole


def _unwound(ring: Ring, before: float) -> Ring:
    found = []
    for lon, lat in ring:
        before += wrapped(lon - before)
        found.append((before, lat))
    if found and found[0] != found[-1]:
        found.append(found[0])
    return tuple(found)


def _require_place(where: str, lat: Any, lon: Any) -> None:
    if not _is_number(lat) or not -90 <= lat <= 90:
        raise OptionError(f"{where}: latitude", lat, "degrees, -90 to 90")
    if not _is_number(lon) or not -180 <= lon <= 180:
        raise OptionError(f"{where}: longitude", lon, "degrees, -180 to 180")


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)

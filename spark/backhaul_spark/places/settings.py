"""The operator's settings for positions: the table [places] of the jobs' TOML file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from backhaul_spark.config_file import read_config, refuse_unknown
from backhaul_spark.decode.series import parse_series
from backhaul_spark.errors import OptionError

Names: TypeAlias = tuple[str, str, str]
"""Node, type and key of a series."""
Role: TypeAlias = Literal["lat", "lon", "energy", "running"]
# A result that a new version of this code says differently is computed anew: raise it then.
RULES_VERSION = 1
_SECOND_NS = 1_000_000_000


class PlacesSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Series, and limits in metres and seconds. docs/places.md explains each.

    Attributes:
        positions: pairs of series, latitude and longitude, in degrees times `degrees`; a vehicle has one of the pairs.
        energy: a series, "" for none: `power` in W, a `counter` in Wh, or a `level` in Wh, each times `energy_scale`.
        running: a series that is above 0 while the engine runs, "" for none.
    """

    positions: tuple[tuple[str, str], ...] = (("gps.lat", "gps.lon"),)
    degrees: float = 1.0
    energy: str = ""
    energy_kind: Literal["power", "counter", "level"] = "power"
    energy_scale: float = 1.0
    running: str = ""
    pair_s: float = 0.5
    speed_max_mps: float = 70.0
    noise_m: float = 30.0
    jump_s: float = 60.0
    gap_s: float = 600.0
    stop_m: float = 50.0
    stop_s: float = 180.0
    trip_m: float = 100.0
    move_m: float = 5.0
    idle_mps: float = 1.0
    fence_s: float = 10.0
    fence_dwell_s: float = 300.0
    cell_resolution: int = 9

    @classmethod
    def read(cls, path: str | None, positions: Sequence[tuple[str, str]] = ()) -> PlacesSettings:
        """Read the table [places] of a file; without file or table it is the defaults.

        Args:
            path: the file.
            positions: as `--positions` gives them, `lat=...` and `lon=...`; they take the place of the file's.

        Raises:
            OptionError: no such file, no TOML, an unknown section or key, or a value out of its bounds.
        """
        values = {} if path is None else dict(read_config(path).get("places", {}))
        refuse_unknown(values, cls.__struct_fields__, "[places]")
        if positions:
            values["positions"] = [_pair(pair) for pair in positions]
        try:
            found = msgspec.convert(values, cls)
        except msgspec.ValidationError as error:
            raise OptionError("[places]", values, str(error)) from error
        found._check()
        return found

    def _check(self) -> None:
        for name in ("pair_s", "jump_s", "fence_s", "fence_dwell_s"):
            _require(name, getattr(self, name), "0 or more", getattr(self, name) >= 0)
        for name in (
            "degrees",
            "speed_max_mps",
            "noise_m",
            "stop_m",
            "stop_s",
            "move_m",
            "idle_mps",
        ):
            _require(name, getattr(self, name), "a number above 0", getattr(self, name) > 0)
        _require(
            "gap_s", self.gap_s, f"stop_s ({self.stop_s:g}) or more", self.gap_s >= self.stop_s
        )
        _require(
            "trip_m", self.trip_m, f"stop_m ({self.stop_m:g}) or more", self.trip_m >= self.stop_m
        )
        _require(
            "move_m", self.move_m, f"at most stop_m ({self.stop_m:g})", self.move_m <= self.stop_m
        )
        within = 0 <= self.cell_resolution <= 15
        _require("cell_resolution", self.cell_resolution, "0 to 15", within)
        _require("positions", self.positions, "at least one pair", bool(self.positions))
        names = [names for names, _ in self._named()]
        _require("positions", self.positions, "each series once", len(set(names)) == len(names))

    def roles(self) -> Mapping[Names, Role]:
        """Return the role of each series that is read. Raises: OptionError: a name that is no series."""
        return dict(self._named())

    def _named(self) -> list[tuple[Names, Role]]:
        found: list[tuple[Names, Role]] = []
        for lat, lon in self.positions:
            found += [(_names("positions", lat), "lat"), (_names("positions", lon), "lon")]
        if self.energy:
            found.append((_names("energy", self.energy), "energy"))
        if self.running:
            found.append((_names("running", self.running), "running"))
        return found

    @property
    def gap_ns(self) -> int:
        """The longest time between two fixes of one stretch, ns."""
        return ns(self.gap_s)


def ns(seconds: float) -> int:
    """Return seconds in ns."""
    return round(seconds * _SECOND_NS)


def digest_of(settings: PlacesSettings, fences: Any) -> int:
    """Return a number that is another one for other settings, fences or rules: 62 bits, above 0."""
    said = msgspec.json.encode([RULES_VERSION, settings, fences], order="sorted")
    return (int.from_bytes(hashlib.blake2b(said, digest_size=8).digest()) >> 2) | 1


def _pair(pair: tuple[str, str]) -> tuple[str, str]:
    said = dict(each.partition("=")[::2] for each in pair)
    if sorted(said) != ["lat", "lon"]:
        raise OptionError("--positions", " ".join(pair), "lat=SERIES lon=SERIES")
    return said["lat"], said["lon"]


def _names(key: str, text: str) -> Names:
    series = parse_series(text, f"[places] {key}")
    return series.node, series.type, series.key


def _require(key: str, value: object, expected: str, true: bool) -> None:
    if not true:
        raise OptionError(f"[places] {key}", value, expected)

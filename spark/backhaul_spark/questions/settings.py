"""The operator's settings for questions: the table [questions] of the jobs' TOML file."""

from __future__ import annotations

import msgspec

from backhaul_spark.config_file import read_config, refuse_unknown
from backhaul_spark.decode.series import SeriesKey, parse_series
from backhaul_spark.errors import OptionError

NUMBERS = ("speed", "lat", "lon", "load", "fuel", "fuel_use", "status", "running")
"""What vehicles measure."""
TEXTS = ("fleet", "driver", "model", "firmware")
"""What they say of themselves, in words."""
SAID_NUMBERS = ("load_capacity", "nominal_fuel_use")
"""And in numbers."""


class QuestionsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Series, and limits in the units of theirs. docs/questions.md explains each.

    Attributes:
        status: a series that is 0 while the vehicle is in order.
        running: a series that is above 0 while the engine runs.
        fuel: a series from 0 to 1.
        moving: a vehicle with a greater speed moves; driving: it drives, without a stop.
        low_fuel: less fuel is low.
        high_load: a greater part of `load_capacity` is high.
        units: of series, from [fleet.units].
    """

    speed: str = "gps.speed"
    lat: str = "gps.lat"
    lon: str = "gps.lon"
    load: str = "truck.load"
    fuel: str = "truck.fuel"
    fuel_use: str = "truck.fuel_use"
    status: str = "truck.status"
    running: str = "engine.running"
    fleet: str = "vehicle.fleet"
    driver: str = "vehicle.driver"
    model: str = "vehicle.model"
    firmware: str = "vehicle.firmware"
    load_capacity: str = "vehicle.load_capacity"
    nominal_fuel_use: str = "vehicle.nominal_fuel_use"
    moving: float = 1.0
    driving: float = 5.0
    low_fuel: float = 0.1
    high_load: float = 0.9
    units: dict[str, str] = {}

    @classmethod
    def read(cls, path: str | None) -> QuestionsSettings:
        """Read the table [questions] of a file; without file or table it is the defaults.

        Raises:
            OptionError: no such file, no TOML, an unknown key, or a value that is none.
        """
        config = {} if path is None else read_config(path)
        values = dict(config.get("questions", {}))
        refuse_unknown(
            values, [key for key in cls.__struct_fields__ if key != "units"], "[questions]"
        )
        values["units"] = config.get("fleet", {}).get("units", {})
        try:
            found = msgspec.convert(values, cls)
        except msgspec.ValidationError as error:
            raise OptionError("[questions]", values, str(error)) from error
        for role in (*NUMBERS, *TEXTS, *SAID_NUMBERS):
            found.series(role)
        for each in found.units:
            parse_series(each, "[fleet.units]")
        return found

    def series(self, role: str) -> SeriesKey:
        """Return the series of a role. Raises: OptionError: its name is none."""
        return parse_series(getattr(self, role), f"[questions] {role}")

    @property
    def limits(self) -> dict[str, float]:
        """The limits by name."""
        return {
            name: float(getattr(self, name))
            for name in ("moving", "driving", "low_fuel", "high_load")
        }

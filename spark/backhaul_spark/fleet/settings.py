"""The fleet's own settings: the table [fleet] of the jobs' TOML file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from backhaul_spark.config_file import read_config, refuse_unknown
from backhaul_spark.errors import OptionError
from backhaul_spark.fleet.readings import Signal
from backhaul_spark.query.history import parse_series


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """Series written node.type or node.type.key.

    Attributes:
        model, firmware: text series in which a vehicle says what it is.
        drains: signals that run empty, such as a battery: to fall faster than the peers is an
            anomaly.
        units: of series, for pictures.
    """

    model: str = "vehicle.model"
    firmware: str = "vehicle.firmware"
    drains: tuple[str, ...] = ("battery.soc",)
    units: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str | None) -> FleetSettings:
        """Read the table [fleet] of a file; without file or table it is the defaults.

        Raises:
            OptionError: no such file, no TOML, an unknown section or key, or a value that is no series.
        """
        return cls() if path is None else cls(**_checked(read_config(path).get("fleet", {})))


def signal_of(text: str) -> Signal:
    """Return the signal that `text` names. Raises: OptionError."""
    series = parse_series("", text)
    return Signal(series.node, series.type, series.key)


def _checked(values: dict[str, Any]) -> dict[str, Any]:
    refuse_unknown(values, [each.name for each in fields(FleetSettings)], "[fleet]")
    checked: dict[str, Any] = {}
    for key, value in values.items():
        series = value if key == "drains" else [value]
        if key == "units":
            if not isinstance(value, dict) or not all(isinstance(u, str) for u in value.values()):
                raise OptionError("[fleet.units]", value, 'units such as "battery.temp" = "°C"')
            series = list(value)
        if not isinstance(series, list) or not all(isinstance(each, str) for each in series):
            raise OptionError(f"[fleet] {key}", value, "series such as vehicle.model")
        for each in series:
            try:
                signal_of(each)
            except OptionError as error:
                raise OptionError(f"[fleet] {key}", each, "a series such as battery.soc") from error
        checked[key] = tuple(series) if key == "drains" else value
    return checked

"""A mapping from a recording's columns to series: one TOML file, checked when it is read.

[time]
column = "t_ns"
unit = "ns"                # ns, us, ms, s, or rfc3339
dates = true               # false: times count from something else than 1970, as from a boot

[[series]]                 # wide form: one row holds readings of several series
column = "Soc"
node = "battery"
type = "soc"

[long]                     # or long form: one row is one reading
value = "value"
node = "px4"               # node, type and key may name columns: "{topic}"
type = "{signal}"
key = ""

[[filter]]                 # optional: only rows with one of these values
column = "log"
only = ["sample"]

[device]                   # only for `backhaul-hub import`: of which vehicle a row is
column = "vin"             # as a column says
file = "{device}/*.csv"    # or as the file is called
names = {WVW123 = "VID-001"}   # optional: which id stands for what is found there
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from backhaul_codec.errors import MappingError
from backhaul_codec.strict.toml import TomlError, read_toml

Text = Annotated[str, Meta(min_length=1)]
Dtype = Literal["auto", "float64", "int64", "text"]
_COLUMN = re.compile(r"\{([^{}]+)\}")


class TimeColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """[time]: where a row's time stands, and in which unit since the Unix epoch.

    ``dates``: a time that is not in the years 1990 to 2099 is none.
    """

    column: Text
    unit: Literal["ns", "us", "ms", "s", "rfc3339"] = "ns"
    dates: bool = True


class MappedSeries(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """[[series]]: one column of a wide recording. ``dtype`` is for CSV, where all is text."""

    column: Text
    node: Text
    type: Text
    key: str = ""
    dtype: Dtype = "auto"


class Long(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """[long]: the columns of a recording with one reading a row."""

    value: Text
    node: Text
    type: Text
    key: str = ""
    dtype: Dtype = "auto"


class Filter(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """[[filter]]: keep rows whose column has one of these values."""

    column: Text
    only: Annotated[list[str | int | float], Meta(min_length=1)]


class DeviceOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """[device]: of which vehicle rows are, by a column or by the file's path below the directory."""

    column: str = ""
    file: str = ""
    names: dict[str, str] = {}

    def of_path(self, path: str) -> str | None:
        """Return the device's part of a path, parts divided by "/"; None: it is not like the pattern.

        A pattern without "/" is compared with the file's name alone.
        """
        pattern = re.escape(self.file).replace(r"\*", "[^/]*")
        pattern = pattern.replace(r"\{device\}", r"([A-Za-z0-9][A-Za-z0-9_-]*?)")
        found = re.fullmatch(pattern, path if "/" in self.file else path.rpartition("/")[2])
        return found and self.name(found[1])

    def name(self, said: str) -> str:
        """Return the device's id by the text of a column or path."""
        return self.names.get(said, said)


class Mapping(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The whole file: a time, and either ``series`` or ``long``."""

    time: TimeColumn
    series: list[MappedSeries] = []
    long: Long | None = None
    filter: list[Filter] = []
    device: DeviceOf | None = None

    def readings(self) -> list[MappedSeries]:
        """Return every column that holds values; the long form is one column with templates."""
        if self.long is None:
            return self.series
        long = self.long
        return [MappedSeries(long.value, long.node, long.type, long.key, long.dtype)]

    def columns(self) -> list[str]:
        """Return the names of all columns needed, each once."""
        names = [self.time.column, *(item.column for item in self.filter)]
        for reading in self.readings():
            names.append(reading.column)
            for template in (reading.node, reading.type, reading.key):
                names += _COLUMN.findall(template)
        if self.device is not None and self.device.column:
            names.append(self.device.column)
        return list(dict.fromkeys(names))


def load(path: Path) -> Mapping:
    """Read and check a mapping.

    Raises:
        MappingError: what is wrong, and where.
    """
    try:
        mapping = msgspec.convert(read_toml(path.read_text(encoding="utf-8")), Mapping)
    except (OSError, TomlError, UnicodeDecodeError) as error:
        raise MappingError(f"{path}: {error}") from error
    except msgspec.ValidationError as error:
        raise MappingError(f"{path}: {str(error).replace('$.', '')}") from error
    if bool(mapping.series) == (mapping.long is not None):
        raise MappingError(f"{path}: give either [[series]] (wide form) or [long], not both")
    if (device := mapping.device) is not None:
        if bool(device.column) == bool(device.file):
            raise MappingError(f"{path}: device: give either column or file, not both")
        if device.file and device.file.count("{device}") != 1:
            raise MappingError(f"{path}: device.file: {{device}} stands in it once")
    return mapping


class Template:
    """A node, type or key that may name columns, e.g. ``px4-{topic}``; remembers its results."""

    def __init__(self, text: str) -> None:
        self.columns = _COLUMN.findall(text)
        self._text = text
        self._results: dict[tuple[object, ...], str] = {}

    def fill(self, columns: dict[str, list[Any]], index: int) -> str:
        """Return the text with that row's values in their places; null counts as empty."""
        if not self.columns:
            return self._text
        values = tuple([columns[name][index] for name in self.columns])
        if values not in self._results:
            if len(self._results) > 10_000:
                self._results.clear()
            filled = dict(zip(self.columns, values, strict=True))
            self._results[values] = _COLUMN.sub(
                lambda found: "" if filled[found[1]] is None else str(filled[found[1]]), self._text
            )
        return self._results[values]

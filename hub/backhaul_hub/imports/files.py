"""The files of an import, looked at before anything is published: device, rows, and times of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from backhaul_codec.errors import MappingError
from backhaul_codec.recordings.mapping import DeviceOf, Mapping
from backhaul_codec.recordings.points import RowMapper
from backhaul_codec.recordings.readers import SUFFIXES, open_recording
from backhaul_codec.recordings.times import TimeCheck
from backhaul_codec.subjects import DEVICE_ID
from backhaul_hub.imports.split import Splitter


@dataclass(frozen=True, slots=True)
class RefusedPart:
    """A part that is not imported, and why: a file, or the rows of one device in it."""

    file: str
    why: str
    device: str = ""


@dataclass(slots=True)
class FoundFiles:
    """The files that can be imported: rows by device of each, and the parts that cannot be."""

    files: dict[Path, dict[str, int]] = field(default_factory=dict)
    refused: list[RefusedPart] = field(default_factory=list)
    untimed: int = 0

    @property
    def rows(self) -> int:
        """How many rows all files have."""
        return sum(sum(devices.values()) for devices in self.files.values())

    @property
    def devices(self) -> list[str]:
        """Return all devices, by name."""
        return sorted({device for devices in self.files.values() for device in devices})


def files_below(directory: Path) -> list[Path]:
    """Return the recordings in a directory and all below it, in the order of their names."""
    return sorted(
        path
        for path in directory.rglob("*")
        if path.suffix.lower() in SUFFIXES and path.is_file() and not path.name.startswith(".")
    )


def look(
    directory: Path, mapping: Mapping, of: DeviceOf, told: Callable[[Path], None]
) -> FoundFiles:
    """Read all files through once. ``told``: of each before it is read."""
    found = FoundFiles()
    for path in files_below(directory):
        told(path)
        name = path.relative_to(directory).as_posix()
        try:
            devices, untimed = _look_at(path, name, mapping, of)
        except MappingError as error:
            found.refused.append(RefusedPart(name, str(error)))
            continue
        found.files[path] = devices
        found.untimed += untimed
    return found


def splitter_of(path: Path, directory: Path, of: DeviceOf) -> Splitter:
    """Return the splitter that cuts a file's rows by device.

    Raises:
        MappingError: the file's name does not say whose it is.
    """
    if of.column:
        return Splitter(of, None)
    name = path.relative_to(directory).as_posix()
    device = of.of_path(name)
    if device is None:
        raise MappingError(f"its name is not like device.file, {of.file!r}")
    if not DEVICE_ID.match(device):
        raise MappingError(f"{device!r}, which device.file finds in its name, is no device id")
    return Splitter(of, device)


def _look_at(path: Path, name: str, mapping: Mapping, of: DeviceOf) -> tuple[dict[str, int], int]:
    splitter = splitter_of(path, path.parents[name.count("/")], of)
    times = TimeCheck(mapping.time.unit, dates=mapping.time.dates)
    with open_recording(path, mapping.columns()) as recording:
        mapper = RowMapper(mapping, text_only=recording.text_only)
        for chunk in recording.chunks():
            for number, raw, time_ns in mapper.times(chunk):
                times.note(number, raw, time_ns)
            for _ in splitter.split(chunk):
                pass
    times.require(mapping.time.column, "mend the mapping, or leave the file out")
    if splitter.unnamed:
        shown = ", ".join(f"{text!r} ({rows} rows)" for text, rows in splitter.unnamed.items())
        raise MappingError(f"names no device: {shown}", column=of.column)
    return dict(splitter.rows), times.rows_untimed


def groups(devices: dict[str, int], cells_max: int, cells: int) -> Iterator[set[str]]:
    """Yield the devices of a file in groups whose open blocks fit into memory together.

    ``cells``: of a block of one device.
    """
    names = sorted(devices)
    size = max(1, cells_max // max(1, cells))
    for start in range(0, len(names), size):
        yield set(names[start : start + size])

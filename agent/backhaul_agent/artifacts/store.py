"""The directory of artifacts on the vehicle: slots, partial files, and files that wait to be sent.

    <dir>/<slot>             what a slot holds, whole and checked
    <dir>/.work/<sha256>.part, .json    half fetched
    <dir>/.work/get-<sha256>            fetched for a program that asked
    <dir>/.work/up-<id>, up-<id>.json   to be uploaded

Blocking: call it from a thread. All methods raise OSError.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from backhaul_agent.artifacts.partial_file import drop_part
from backhaul_agent.errors import ArtifactError
from backhaul_agent.files import write_whole
from backhaul_codec.protocol import blobs
from backhaul_codec.strict.json import JsonError, read_typed

if TYPE_CHECKING:
    from backhaul_agent.config import ArtifactsConfig


PART_OF_ONE_MAX = 0.75


class Waiting(msgspec.Struct, forbid_unknown_fields=True):
    """A file that waits to be sent, as it is written beside it."""

    name: str
    size: int
    digest: bytes


def free_bytes(directory: Path) -> int:
    """Return how much the disk of a directory has left."""
    return shutil.disk_usage(directory).free


class ArtifactStore:
    """Knows where each file is, and whether there is room for another."""

    def __init__(self, config: ArtifactsConfig, free: Callable[[Path], int] = free_bytes) -> None:
        self.directory = Path(config.dir)
        self._work = self.directory / ".work"
        self._config = config
        self._free = free

    def prepare(self) -> dict[str, Waiting]:
        """Make the directories; return the files that wait to be sent, in order. The rest is removed."""
        self._work.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = {}
        for path in sorted(self._work.glob("up-*.json")):
            with contextlib.suppress(JsonError, FileNotFoundError):
                waiting = read_typed(path.read_bytes(), Waiting)
                if path.with_suffix("").stat().st_size == waiting.size:
                    found[path.stem.removeprefix("up-")] = waiting
        for path in self._work.iterdir():
            kind, _, rest = path.name.partition("-")
            if kind == "up" and rest.removesuffix(".json") not in found:
                path.unlink()
        return found

    def slot(self, name: str) -> Path:
        """Return where a slot's file is."""
        return self.directory / name

    def part(self, digest: bytes) -> Path:
        """Return where a version grows."""
        return self._work / f"{digest.hex()}.part"

    def fetched(self, digest: bytes) -> Path:
        """Return where a version is that a program asked for."""
        return self._work / f"get-{digest.hex()}"

    def upload(self, number: str) -> Path:
        """Return where a file is that waits to be sent."""
        return self._work / f"up-{number}"

    def keep_upload(self, number: str, waiting: Waiting) -> None:
        """See that a whole file will be sent, also after a crash."""
        path = self.upload(number)
        with path.open("r+b") as file:
            os.fsync(file.fileno())
        write_whole(path.with_name(path.name + ".json"), msgspec.json.encode(waiting))

    def drop_upload(self, number: str) -> None:
        """Remove a file that was sent, or is not to be."""
        path = self.upload(number)
        path.with_name(path.name + ".json").unlink(missing_ok=True)
        path.unlink(missing_ok=True)

    def size(self, path: Path) -> int:
        """Return how large a file is; 0 where there is none."""
        try:
            return path.stat().st_size
        except FileNotFoundError:
            return 0

    def require_room(
        self,
        part: Path,
        whole: int,
        keep: Collection[Path],
        growing: Mapping[Path, int] = MappingProxyType({}),
    ) -> None:
        """See that a part may grow to ``whole`` bytes; remove unwanted files if it may not.

        ``keep``: parts and fetched files that are wanted. ``growing``: others that may grow, and to
        which size.

        Raises:
            ArtifactError: there is no room.
        """
        size = whole - self.size(part)
        promised = sum(max(0, end - self.size(each)) for each, end in growing.items())
        if self._short(size + promised) <= 0:
            return
        for path in [*self._work.glob("*.part"), *self._work.glob("get-*")]:
            if path not in keep and path not in growing:
                drop_part(path)
        if self._short(size + promised) > 0:
            raise self._no_room(size, promised)

    def require_part(self, size: int) -> None:
        """See that one program's files may take so many bytes.

        Raises:
            ArtifactError: it would be more than three quarters of the room.
        """
        config, used = self._config, self._used()
        room = min(config.bytes_max, used + self._free(self.directory) - config.free_bytes_min)
        if size > room * PART_OF_ONE_MAX:
            raise ArtifactError(
                f"no room: files of one program may take three quarters of {max(0, room)} bytes,"
                f" and with this one yours would take {size}",
                code=blobs.FULL,
            )

    def require_free(self, size: int) -> None:
        """See that the disk takes so many bytes more and leaves others their share.

        Raises:
            ArtifactError: it does not.
        """
        if size > self._free(self.directory) - self._config.free_bytes_min:
            raise self._no_room(size, 0)

    def _no_room(self, size: int, promised: int) -> ArtifactError:
        used, free = self._used(), self._free(self.directory)
        return ArtifactError(
            f"no room for {size} bytes: artifacts take {used} of {self._config.bytes_max}, and"
            f" {promised} bytes of it are promised to other files; the disk has {free} left,"
            f" {self._config.free_bytes_min} of it for others",
            code=blobs.FULL,
        )

    def _short(self, size: int) -> int:
        config = self._config
        of_limit = self._used() + size - config.bytes_max
        return max(of_limit, size - self._free(self.directory) + config.free_bytes_min)

    def _used(self) -> int:
        files = [*self.directory.iterdir(), *self._work.iterdir()]
        return sum(path.stat().st_size for path in files if path.is_file())

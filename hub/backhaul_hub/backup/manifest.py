"""The contents of a backup: manifest.json, its files and how they are checked.

The manifest is written last: a directory without one is unfinished. Until then what is finished stands
in `manifest.part.json`, so that a backup that was cut short goes on where it was.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from backhaul_codec.strict.json import JsonError, read_typed
from backhaul_hub.backup.names import FILE, STREAM
from backhaul_hub.errors import BackupError
from backhaul_hub.private_files import private_directory, write_private
from backhaul_hub.uplink.stream_digest import Block

MANIFEST = "manifest.json"
PARTIAL = "manifest.part.json"
FORMAT = 1
REGISTRY = "hub.db"


class FileEntry(msgspec.Struct, frozen=True):
    """One file of the backup, by its path in it."""

    bytes: int
    sha256: str


class StreamEntry(msgspec.Struct, frozen=True):
    """One stream, and its contents when its snapshot began."""

    name: str
    file: str
    created: str
    config: dict[str, Any]
    state: dict[str, Any]
    blocks: list[Block] = []
    """Empty where it cannot be read by sequence, or changed all the time."""


class EmptyEntry(msgspec.Struct, frozen=True):
    """A stream that was left out on request; one that begins after it is put in its place."""

    name: str
    last_seq: int


class ArtifactEntry(msgspec.Struct, frozen=True):
    """One object of the object store; the file is named by its SHA-256."""

    name: str
    file: str
    bytes: int
    sha256: str
    description: str = ""


class Manifest(msgspec.Struct):
    """All of a backup."""

    server_version: str
    env: str
    began: str
    format: int = FORMAT
    ended: str = ""
    files: dict[str, FileEntry] = {}
    streams: list[StreamEntry] = []
    emptied: list[EmptyEntry] = []
    artifacts: list[ArtifactEntry] = []

    def stream(self, name: str) -> StreamEntry | None:
        """Return the record of a stream."""
        return next((each for each in self.streams if each.name == name), None)


def load_manifest(directory: Path, name: str = MANIFEST) -> Manifest | None:
    """Read a backup's manifest; None where there is none.

    Raises:
        BackupError: it cannot be read, is of another format, or names what is no part of a backup.
    """
    path = directory / name
    try:
        manifest = read_typed(path.read_bytes(), Manifest)
    except FileNotFoundError:
        return None
    except (OSError, JsonError) as error:
        raise BackupError(f"{path}: {error}") from error
    if manifest.format != FORMAT:
        raise BackupError(f"{path} has format {manifest.format}, this program knows {FORMAT}")
    require_names(manifest)
    return manifest


def store_manifest(directory: Path, manifest: Manifest, name: str = PARTIAL) -> None:
    """Write a manifest, whole or not at all."""
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=1).decode()
    write_private(directory / name, text)


def check_file(directory: Path, name: str, entry: FileEntry) -> str:
    """Return the error in a file of a backup, "" where there is none."""
    path = directory / name
    try:
        if (size := path.stat().st_size) != entry.bytes:
            return f"{path} has {size} bytes, not {entry.bytes}"
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != entry.sha256:
                return f"{path} is damaged: its SHA-256 is another one"
    except OSError as error:
        return f"{path}: {error.strerror}"
    return ""


def check_files(directory: Path, manifest: Manifest) -> None:
    """Check every file of a backup against its manifest.

    Raises:
        BackupError: naming each file that is missing or damaged.
    """
    wrong = [check_file(directory, name, entry) for name, entry in manifest.files.items()]
    if any(wrong):
        raise BackupError(
            "\n  ".join(["the backup is not whole:", *filter(None, wrong)]),
            hint="take another backup",
        )


class NewFile:
    """A file of a backup while it is written: for its owner alone, digest as it grows."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.bytes = 0

    def write(self, data: bytes) -> None:
        """Append."""
        self._file.write(data)
        self._digest.update(data)
        self.bytes += len(data)

    def entry(self) -> FileEntry:
        """Return the manifest's record of it."""
        return FileEntry(self.bytes, self._digest.hexdigest())


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[NewFile]:
    """Write a file that appears, synced, when all of it is there.

    Raises:
        BackupError: the disk does not take it.
    """
    partial = path.with_name(path.name + ".new")
    try:
        private_directory(path.parent)
        partial.unlink(missing_ok=True)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            yield NewFile(file)
            file.flush()
            os.fsync(descriptor)
        partial.replace(path)
    except OSError as error:
        raise BackupError(f"{path}: {error.strerror}") from error
    finally:
        partial.unlink(missing_ok=True)


def require_names(manifest: Manifest) -> None:
    """See that every name in a manifest is one that `backup` gives.

    Raises:
        BackupError: naming those that are not.
    """
    if wrong := sorted(set(_wrong(manifest))):
        raise BackupError(
            "\n  ".join(
                ["the manifest names what is no part of a backup:", *map(repr, wrong[:20])]
            ),
            hint="nothing was read or written; take a backup that `backhaul-hub backup` has made",
        )


def _wrong(manifest: Manifest) -> Iterator[str]:
    for name in manifest.files:
        # "keys/.." would match as a last part.
        if FILE.fullmatch(name) is None or name.rpartition("/")[2] in (".", ".."):
            yield name
    # Stands in subjects of JetStream's API, too.
    names = [each.name for each in manifest.streams] + [each.name for each in manifest.emptied]
    yield from (name for name in names if not re.fullmatch(STREAM, name))
    for stream in manifest.streams:
        if stream.file != f"streams/{stream.name}.tar.s2" or stream.file not in manifest.files:
            yield stream.file
    for artifact in manifest.artifacts:
        if artifact.file != f"artifacts/{artifact.sha256}" or artifact.file not in manifest.files:
            yield artifact.file

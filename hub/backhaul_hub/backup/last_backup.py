"""`last-backup.json` in the hub directory: where the newest backup is, should hub.db be lost."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from backhaul_hub.private_files import write_private

_NAME = "last-backup.json"


class LastBackup(msgspec.Struct, frozen=True):
    """One backup that is whole."""

    path: str
    taken: str
    """When, ISO 8601."""
    devices: int
    """So many are in its hub.db."""


def note_backup(directory: Path, backup: LastBackup) -> None:
    """Note where a backup is. A hub directory that cannot be written is backed up all the same."""
    with contextlib.suppress(OSError):
        write_private(directory / _NAME, msgspec.json.encode(backup).decode())


def last_backup(directory: Path) -> LastBackup | None:
    """Return the newest backup that was noted; None where none was, or the note is damaged."""
    try:
        return msgspec.json.decode((directory / _NAME).read_bytes(), type=LastBackup)
    except (OSError, msgspec.DecodeError):
        return None

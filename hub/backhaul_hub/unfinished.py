"""The mark of a restore that has not come to its end: until then no control plane may start."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from backhaul_hub.errors import BackupError
from backhaul_hub.private_files import write_private

_NAME = "restore.unfinished"


class Unfinished(NamedTuple):
    """A restore that was begun and not ended."""

    source: str
    """The backup."""
    cleared: bool
    """Whether all that was there before is gone: what is there now, the restore has put back."""


def mark_unfinished(directory: Path, source: Path, *, cleared: bool) -> None:
    """Note that a hub is being put back from a backup."""
    write_private(directory / _NAME, f"{int(cleared)}\n{source.absolute()}\n")


def clear_unfinished(directory: Path) -> None:
    """Note that it is whole."""
    (directory / _NAME).unlink(missing_ok=True)


def unfinished(directory: Path) -> Unfinished | None:
    """Return the restore that was begun here and not ended."""
    try:
        cleared, _, source = (directory / _NAME).read_text().partition("\n")
    except FileNotFoundError:
        return None
    return Unfinished(source.strip(), cleared == "1")


def require_finished(directory: Path) -> None:
    """Refuse a hub that is half put back: it would take missing parts for lost.

    Raises:
        BackupError: a restore was begun and not ended.
    """
    if (begun := unfinished(directory)) is not None:
        raise BackupError(
            f"a restore into {directory} has not come to its end",
            hint=f"run it again: backhaul-hub restore {begun.source} --dir {directory}",
        )

"""The note that a hub's streams go, or have gone, to another server: from the switch on none runs here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from backhaul_codec.strict.json import JsonError, read_typed
from backhaul_hub.errors import BackupError
from backhaul_hub.private_files import write_private

_NAME = "migration.json"


class Move(msgspec.Struct):
    """A migration that was begun."""

    to: str
    """The other server."""
    streams: list[str] = []
    """What was made there by it, whole or not."""
    switched: bool = False
    """Whether the hub stands still for it: from then on it runs there or nowhere."""
    closed: dict[str, dict[str, Any]] = {}
    """Streams that take nothing more in here, each with the configuration it had."""
    done: bool = False


def note_move(directory: Path, move: Move) -> None:
    """Write the note, whole or not at all."""
    write_private(directory / _NAME, msgspec.json.encode(move).decode())


def move_of(directory: Path) -> Move | None:
    """Return the migration that was begun from here.

    Raises:
        BackupError: the note cannot be read.
    """
    try:
        return read_typed((directory / _NAME).read_bytes(), Move)
    except FileNotFoundError:
        return None
    except (OSError, JsonError) as error:
        raise BackupError(f"{directory / _NAME}: {error}") from error


def forget_move(directory: Path) -> None:
    """Take the note away: the hub runs here again."""
    (directory / _NAME).unlink(missing_ok=True)


def require_here(directory: Path) -> None:
    """Refuse a hub that has switched to another server: two would each believe to hold everything.

    Raises:
        BackupError: it has, and was not taken back.
    """
    if (move := move_of(directory)) is not None and move.switched:
        raise BackupError(
            f"this hub moves, or has moved, to {move.to}",
            hint=f"to take it back: backhaul-hub migrate --abort --to URL --dir {directory}",
        )

"""Several backups in one directory: where the next one goes, and which ones are old."""

from __future__ import annotations

import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

from backhaul_hub.backup.manifest import MANIFEST, PARTIAL
from backhaul_hub.errors import BackupError

_NAME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{6}Z")


def begin_next(parent: Path, now_ns: int) -> Path:
    """Return where the next backup goes: an unfinished one that is there, else one named by the time.

    `now_ns` is since the Unix epoch.

    Raises:
        BackupError: the directory cannot be read.
    """
    for each in reversed(_backups(parent)):
        if (each / PARTIAL).exists():
            return each
    now = datetime.fromtimestamp(now_ns // 10**9, UTC)
    return parent / now.strftime("%Y-%m-%dT%H%M%SZ")


def drop_oldest(parent: Path, keep: int) -> list[Path]:
    """Remove the oldest finished backups beyond `keep`; return those that went.

    Nothing is removed that this program has not named, or that is not finished.
    Raises: BackupError: one could not be removed.
    """
    finished = [each for each in _backups(parent) if (each / MANIFEST).exists()]
    old = finished[:-keep]
    for each in old:
        try:
            # Without its manifest first: cut short, it is no backup any more.
            (each / MANIFEST).unlink()
            shutil.rmtree(each)
        except OSError as error:
            raise BackupError(f"{error.filename or each}: {error.strerror}") from error
    return old


def _backups(parent: Path) -> list[Path]:
    try:
        return sorted(each for each in parent.iterdir() if _NAME.fullmatch(each.name))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BackupError(f"{parent}: {error.strerror}") from error

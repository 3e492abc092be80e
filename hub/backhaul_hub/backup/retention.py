"""Several backups in one directory: where the next one goes, and which ones are old."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from backhaul_hub.backup.manifest import MANIFEST, PARTIAL, REGISTRY
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
    _remove(old)
    return old


def drop_erased(newest: Path) -> list[Path]:
    """Remove the finished backups beside a new one that hold a device which was erased since; return those that went.

    They go whole, since a server restores no part of a stream's snapshot. Raises: BackupError.
    """
    erased = _column(newest / REGISTRY, "SELECT device FROM erasure WHERE state = 'done'")
    old = [each for each, held in holding(newest, erased).items() if held and each != newest]
    _remove(old)
    return old


def holding(newest: Path, devices: Iterable[str]) -> dict[Path, set[str]]:
    """Return which of some devices the hub.db of a backup knows, and those of the finished ones beside it."""
    wanted = json.dumps(sorted(devices))
    query = "SELECT id FROM device WHERE id IN (SELECT value FROM json_each(?))"
    beside = _backups(newest.parent) if _NAME.fullmatch(newest.name) else [newest]
    return {
        each: _column(each / REGISTRY, query, wanted)
        for each in beside
        if (each / MANIFEST).exists()
    }


def _column(path: Path, query: str, *values: str) -> set[str]:
    """Return the first column of a query's rows; none where it is no hub.db, or an older one without that table."""
    try:
        uri = f"file:{quote(str(path))}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            return {row[0] for row in connection.execute(query, values)}
    except sqlite3.Error:
        return set()


def _remove(some: Iterable[Path]) -> None:
    for each in some:
        try:
            # Without its manifest first: cut short, it is no backup any more.
            (each / MANIFEST).unlink()
            shutil.rmtree(each)
        except OSError as error:
            raise BackupError(f"{error.filename or each}: {error.strerror}") from error


def _backups(parent: Path) -> list[Path]:
    try:
        return sorted(each for each in parent.iterdir() if _NAME.fullmatch(each.name))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BackupError(f"{parent}: {error.strerror}") from error

"""The files of a hub directory, into a backup and out of it: hub.db and configuration."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from backhaul_codec.subjects import DEVICE_ID
from backhaul_hub.access.keys import operator_seed_file
from backhaul_hub.artifacts.object_store import file_digest
from backhaul_hub.backup.manifest import FileEntry, Manifest, require_names
from backhaul_hub.errors import BackupError
from backhaul_hub.private_files import private_directory
from backhaul_hub.servers import server_directories
from backhaul_hub.tls.files import TLS

CONFIG = "config/"


def copy_database(source: Path, target: Path, *, with_journal: bool = False) -> FileEntry:
    """Copy an SQLite database that may be written to meanwhile: one moment of it, checked.

    `with_journal`: the copy goes on with the journal that stand-bys follow; else it knows of none.

    Raises:
        BackupError: there is none, it is damaged, or the disk is full.
    """
    if not source.exists():
        raise BackupError(f"{source} does not exist", hint="has this hub ever run?")
    partial = target.with_name(target.name + ".new")
    try:
        partial.unlink(missing_ok=True)
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL, 0o600))
        with closing(sqlite3.connect(source)) as origin, closing(sqlite3.connect(partial)) as copy:
            origin.backup(copy)
            # One file: nothing of it is in a log beside it.
            copy.execute("PRAGMA journal_mode = DELETE")
            for table in () if with_journal else ("journal", "journal_term"):
                copy.execute(f"DROP TABLE IF EXISTS {table}")
            result = copy.execute("PRAGMA integrity_check").fetchone()[0]
        if result != "ok":
            raise BackupError(f"{source} is damaged: {result}")
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(target)
        return FileEntry(target.stat().st_size, file_digest(target).hex())
    except sqlite3.Error as error:
        raise BackupError(f"{source}: {error}") from error
    except OSError as error:
        raise BackupError(f"{target}: {error.strerror}") from error
    finally:
        partial.unlink(missing_ok=True)


def count_devices(path: Path) -> int:
    """Return how many devices a copy of hub.db knows. Raises: BackupError: it cannot be read."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as connection:
            return int(connection.execute("SELECT count(*) FROM device").fetchone()[0])
    except sqlite3.Error as error:
        raise BackupError(f"{path}: {error}") from error


def configuration_files(directory: Path) -> Iterator[Path]:
    """Yield the files of a hub directory beside hub.db and streams."""
    yield from sorted(directory.glob("*.toml"))
    for place in server_directories(directory):  # of a cluster several
        yield from sorted(place.glob("*.conf"))
    for place in sorted({directory, *server_directories(directory)}):
        yield from sorted(path for path in place.glob(f"{TLS}/*") if path.is_file())
    yield from sorted(directory.glob("creds/*.creds"))
    # Not the operator's own: it belongs offline.
    yield from sorted(set(directory.glob("keys/*")) - {operator_seed_file(directory)})
    yield from sorted(
        path
        for path in directory.glob("devices/*/*")
        if path.is_file() and DEVICE_ID.match(path.parent.name)
    )


def put_missing_files(source: Path, manifest: Manifest, directory: Path) -> list[Path]:
    """Put back the configuration that a hub directory lacks; existing files stay as they are.

    Raises:
        BackupError: a name leads elsewhere, a file is not what was checked, or the directory cannot
            be written.
    """
    require_names(manifest)
    put = []
    for name, entry in manifest.files.items():
        target = directory / name.removeprefix(CONFIG)
        if not name.startswith(CONFIG) or target.exists():
            continue
        try:
            private_directory(target.parent)
            place_file(source / name, target, entry)
        except OSError as error:
            raise BackupError(f"{target}: {error.strerror}") from error
        put.append(target)
    return put


def set_created(path: Path, created: Mapping[str, str]) -> None:
    """Have hub.db know streams by their new creation times, in place of the former ones.

    A server calls what it put back a new stream. Where all of it was compared, the hub reads on where
    it was, instead of all of it again.

    Raises:
        BackupError: it cannot be written.
    """
    pairs = [(now, before) for before, now in created.items()]
    try:
        with closing(sqlite3.connect(path)) as connection:
            # One of an older version knows of no imports.
            there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
            for table in sorted(there & {"position", "import_stream"}):
                connection.executemany(
                    f"UPDATE {table} SET created = ? WHERE created = ?",  # noqa: S608 - of the two
                    pairs,
                )
            connection.commit()
    except sqlite3.Error as error:
        raise BackupError(f"{path}: {error}") from error


def fold_log(path: Path) -> None:
    """Make a database one file: the rows in its log come into it.

    Raises:
        BackupError: it is damaged, or somebody has it open.
    """
    try:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.Error as error:
        raise BackupError(f"{path}: {error}", hint="move it away by hand") from error


def place_file(source: Path, target: Path, entry: FileEntry | None = None) -> None:
    """Copy a file for its owner alone, synced, whole or not at all.

    `entry`: what it has to be.

    Raises:
        BackupError: it is something else, which it became since it was checked.
        OSError: it cannot be read, or not be written.
    """
    partial = target.with_name(target.name + ".part")
    partial.unlink(missing_ok=True)
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as copy, source.open("rb") as original:
            shutil.copyfileobj(original, copy)
            copy.flush()
            os.fsync(descriptor)
        if entry is not None and file_digest(partial).hex() != entry.sha256:
            raise BackupError(f"{source} became another file while it was put back")
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)

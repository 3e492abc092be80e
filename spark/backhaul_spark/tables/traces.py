"""Take rows that are no more out of a table's files, and their values out of its log: for good, not after days.

A commit that takes a file out leaves it where it is, and leaves in the log the least and the greatest of its values.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa  # type: ignore[import-untyped]
from deltalake import DeltaTable
from pyarrow import fs

from backhaul_spark.tables.files import filesystem

_VERSION = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint.*\.parquet")
STRAY_HOURS = 24
"""A file that no commit refers to is of a task that was killed, if it is that old."""


def drop_former_files(table: DeltaTable) -> int:
    """Delete the files that no version from the newest on refers to, and return how many.

    Who reads an older version at this moment finds them gone, and has to read again.
    """
    gone = table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    stray = table.vacuum(STRAY_HOURS, dry_run=False, enforce_retention_duration=False, full=True)
    return len({*gone, *stray})


def forget_former_values(table: DeltaTable) -> int:
    """Have the log name no values of files that are not the newest version's; return how many entries changed.

    Versions, and what each added and took out, stay: a writer that is at work finds its place.
    """
    table.update_incremental()
    table.create_checkpoint()
    system, root = filesystem(table.table_uri.removeprefix("file://"))
    log = f"{root.rstrip('/')}/_delta_log"
    here = {unquote(path) for path in pa.table(table.get_add_actions()).column("path").to_pylist()}
    changed = 0
    for info in system.get_file_info(fs.FileSelector(log)):
        name = info.base_name
        older = _CHECKPOINT.fullmatch(name)
        if older and int(older[1]) < table.version():
            system.delete_file(info.path)
        elif _VERSION.fullmatch(name):
            changed += _without_values(system, info.path, here)
    return changed


def _without_values(system: fs.FileSystem, path: str, here: set[str]) -> bool:
    """Rewrite one version of a log, if it names values of other files than these; return whether it did."""
    with system.open_input_stream(path) as source:
        lines = source.read().splitlines()
    found, changed = list[str](), False
    for line in lines:
        action = json.loads(line)
        for kind in ("add", "remove"):
            entry = action.get(kind)
            if (
                entry
                and entry.get("stats")
                and not (kind == "add" and unquote(entry["path"]) in here)
            ):
                counted = json.loads(entry["stats"]).get("numRecords")
                entry["stats"] = json.dumps({"numRecords": counted})
                if kind == "add" and "minValues" in line.decode():
                    changed = True
        found.append(json.dumps(action, separators=(",", ":")))
    if changed:
        _replace(system, path, "\n".join(found).encode())
    return changed


def _replace(system: fs.FileSystem, path: str, body: bytes) -> None:
    """Write a file in the place of another, whole or not at all."""
    if not isinstance(system, fs.LocalFileSystem):
        with system.open_output_stream(path) as target:
            target.write(body)
        return
    target = Path(path)
    partial = target.with_name(f".{target.name}.new")
    with partial.open("wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(target)

"""The golden files of the world before issue 16, unpacked: databases, messages, expectations."""

from __future__ import annotations

import json
import lzma
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

from .keys import put_seeds

HERE = Path(__file__).parent


def lines() -> list[str]:
    return lzma.decompress((HERE / "messages.jsonl.xz").read_bytes()).decode().splitlines()


def expected(name: str) -> dict[str, Any]:
    """Return what the commit before said, of `<name>.json.xz`."""
    found: dict[str, Any] = json.loads(lzma.decompress((HERE / f"{name}.json.xz").read_bytes()))
    return found


def restore(name: str, path: Path) -> Path:
    """Make a database of a golden file."""
    script = lzma.decompress((HERE / f"{name}.sql.xz").read_bytes()).decode()
    with closing(sqlite3.connect(path)) as made:
        made.executescript(script)
    return path


def rows(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of all tables of a database, by the names of their columns."""
    with closing(sqlite3.connect(path)) as db:
        db.row_factory = sqlite3.Row
        names = [
            row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        found = {name: [dict(row) for row in db.execute(f"SELECT * FROM {name}")] for name in names}
    return found | {
        "command": list(map(ended, found.get("command", []))),
        "commands": list(map(ended_on_vehicle, found.get("commands", []))),
    }


def ended(command: dict[str, Any]) -> dict[str, Any]:
    """Return a row of hub.db's commands with its outcome as schema 15 keeps it, but for the error's code.

    Up to schema 14 a column of JSON held it, as the vehicle or the hub had said it.
    """
    if "said" in command:
        said = json.loads(command["said"])
        command |= {
            "said_by": said.get("by", "vehicle") if said else "",
            "error": said.get("error", ""),
            "result": json.dumps(said["result"]) if "result" in said else "",
            "runs": said.get("runs", 0),
            "doubt": said.get("epoch", 0),
        }
    result = json.loads(command["result"] or "null")
    rest = {name: value for name, value in command.items() if name not in ("said", "code")}
    return rest | {"result": result}


def ended_on_vehicle(command: dict[str, Any]) -> dict[str, Any]:
    """Return a row of a ledger's commands with its outcome as schema 5 keeps it, but for the error's code.

    Up to schema 4 a column of JSON held it, as the vehicle had said it.
    """
    if "said" in command:
        said = json.loads(command["said"] or b"{}")
        command |= {
            "error": said.get("error", "").encode(),
            "result": json.dumps(said["result"]) if "result" in said else "",
        }
    result = json.loads(command["result"] or "null")
    rest = {name: value for name, value in command.items() if name not in ("said", "code")}
    return rest | {"result": result}


def unpack(name: str, target: Path) -> None:
    """Write the files of an archive as they were, with the keys that stand in them."""
    with tarfile.open(HERE / f"{name}.tar.xz") as archive:
        archive.extractall(target, filter="data")
    for path in target.rglob("*"):
        if path.is_file():
            path.write_bytes(put_seeds(path.read_bytes()))

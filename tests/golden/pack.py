"""Make golden files of a world and say what is in them: see make_world.py."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import lzma
import sqlite3
import sys
import tarfile
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from backhaul_hub.db.store import Registry

from . import hub_says, ledger_says, tables_say
from .keys import take_seeds
from .plain import message


def pack(world: Path, golden: Path) -> None:
    """Write all of them."""
    captured = (world / "up.jsonl").read_text().splitlines()
    messages = []
    for line in captured:
        subject, body = json.loads(line)
        messages.append(_text([subject, body, message(subject, base64.b64decode(body))]))
    _compress(golden / "messages.jsonl.xz", "\n".join(messages).encode() + b"\n")
    for name in ("ledger", "hub"):
        with closing(sqlite3.connect(world / f"{name}.db")) as db:
            [version] = db.execute("PRAGMA user_version").fetchone()
            [application] = db.execute("PRAGMA application_id").fetchone()
            dump = [*db.iterdump(), f"PRAGMA application_id = {application};"]
            script = "\n".join([*dump, f"PRAGMA user_version = {version};"])
        _compress(golden / f"{name}-{version}.sql.xz", take_seeds(script.encode()) + b"\n")
        said = asyncio.run(_of_ledger(world) if name == "ledger" else _of_hub(world))
        _compress(golden / f"{name}-{version}.json.xz", _text(said, indent=0).encode())
    _tables(golden, captured)
    backup = world / "backup"
    files = {path: path.read_bytes() for path in sorted(backup.rglob("*")) if path.is_file()}
    _archive(golden / "backup.tar.xz", backup, files)
    (golden / "answers.json").write_text((world / "answers.json").read_text())


async def _of_ledger(world: Path) -> dict[str, Any]:
    ledger = await ledger_says.open_ledger(world / "ledger.db")
    try:
        said = {"says": await ledger_says.says(ledger)}
        return said | {"goes on": await ledger_says.go_on(ledger)}
    finally:
        await ledger.close()


async def _of_hub(world: Path) -> dict[str, Any]:
    async with await Registry.open(world / "hub.db") as registry:
        said = {"says": await hub_says.says(registry)}
        return said | {"goes on": await hub_says.go_on(registry)}


def _tables(golden: Path, captured: list[str]) -> None:
    messages = tables_say.captured(captured)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        tables_say.begin(root, messages)
        files = {path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
        _archive(golden / "tables-4.tar.xz", root, files)
        said = {"says": tables_say.says(root)}
        tables_say.go_on(root, messages)
        said |= {"goes on": tables_say.says(root)}
    _compress(golden / "tables-4.json.xz", _text(said, indent=0).encode())


def _archive(target: Path, root: Path, files: dict[Path, bytes]) -> None:
    with (
        lzma.open(target, "wb", preset=9) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for path, content in files.items():
            marked = take_seeds(content)
            entry = tarfile.TarInfo(str(path.relative_to(root)))
            entry.size = len(marked)
            archive.addfile(entry, io.BytesIO(marked))


def _text(said: Any, **options: Any) -> str:
    return json.dumps(said, ensure_ascii=False, sort_keys=True, **options)


def _compress(target: Path, content: bytes) -> None:
    target.write_bytes(lzma.compress(content, preset=9))


if __name__ == "__main__":
    pack(Path(sys.argv[1]), Path(sys.argv[2]))

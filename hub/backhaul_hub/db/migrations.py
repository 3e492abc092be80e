"""The schema of hub.db: made where there is none, brought up to date where it is an older one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from backhaul_hub.db import tables
from backhaul_hub.db.older_commands import OLDER_COMMANDS, TO_COLUMNS
from backhaul_hub.errors import RegistryError

if TYPE_CHECKING:
    import aiosqlite

SCHEMA_VERSION = 20

_DEVICE_NODE = """
CREATE TABLE device_node (
    device TEXT NOT NULL,
    node TEXT NOT NULL,
    leaving INTEGER NOT NULL,
    PRIMARY KEY (device, node)
) STRICT, WITHOUT ROWID;
"""
# Devices had passwords: they are to be enrolled anew.
_KEYS = """
ALTER TABLE device RENAME COLUMN password_hash TO public_key;
UPDATE device SET public_key = '';
"""
# From an older schema to the next one.
_STEPS = {
    2: _DEVICE_NODE,
    3: OLDER_COMMANDS,
    4: tables.SHADOWS,
    5: tables.ENROLMENT,
    6: _KEYS + tables.REVOCATIONS,
    7: tables.PEOPLE,
    8: tables.KEY_ROTATIONS,
    9: tables.GENERATIONS,
    10: tables.VEHICLES,
    11: tables.IMPORTS,
    12: "ALTER TABLE lane ADD COLUMN chain TEXT NOT NULL DEFAULT '';",
    13: "ALTER TABLE mark ADD COLUMN chain TEXT NOT NULL DEFAULT '{}';",
    14: TO_COLUMNS,
    15: tables.DICTIONARIES,
    16: tables.ALERTS,
    17: tables.PAGE_LOGINS,
    18: tables.LANE_LOG,
    19: tables.ERASURES + tables.AUDIT,
}

SCHEMA = f"""
CREATE TABLE device (
    id TEXT PRIMARY KEY,
    token TEXT NOT NULL UNIQUE,
    public_key TEXT NOT NULL,
    added_ns INTEGER NOT NULL
) STRICT;
CREATE TABLE lane (
    device TEXT NOT NULL,
    lane TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    held TEXT NOT NULL,
    aged TEXT NOT NULL,
    seen TEXT,
    receipts TEXT NOT NULL,
    said INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    repeats INTEGER NOT NULL,
    body_bytes INTEGER NOT NULL,
    last_seen_ns INTEGER NOT NULL,
    chain TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (device, lane, epoch)
) STRICT, WITHOUT ROWID;
CREATE TABLE position (
    stream TEXT PRIMARY KEY,
    created TEXT NOT NULL,
    seq INTEGER NOT NULL,
    quarantined INTEGER NOT NULL,
    stored_ns INTEGER NOT NULL,
    first_seq INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE block (
    stream TEXT NOT NULL,
    number INTEGER NOT NULL,
    low INTEGER NOT NULL,
    high INTEGER NOT NULL,
    high_ns INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    grains TEXT NOT NULL,
    PRIMARY KEY (stream, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE block_lane (
    stream TEXT NOT NULL,
    number INTEGER NOT NULL,
    device TEXT NOT NULL,
    lane TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    ranges TEXT NOT NULL,
    PRIMARY KEY (stream, number, device, lane, epoch)
) STRICT, WITHOUT ROWID;
CREATE INDEX block_of_lane ON block_lane (device, lane, epoch);
CREATE TABLE mark (
    device TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    hour INTEGER NOT NULL,
    time_ns INTEGER NOT NULL,
    lanes TEXT NOT NULL,
    why TEXT NOT NULL,
    chain TEXT NOT NULL DEFAULT '{{}}',
    PRIMARY KEY (device, epoch, seq)
) STRICT, WITHOUT ROWID;
CREATE TABLE ended_epoch (
    device TEXT NOT NULL,
    old INTEGER NOT NULL,
    new INTEGER NOT NULL,
    time_ns INTEGER NOT NULL,
    why TEXT NOT NULL,
    lanes TEXT NOT NULL,
    stored_ns INTEGER NOT NULL,
    PRIMARY KEY (device, old)
) STRICT, WITHOUT ROWID;
CREATE TABLE vehicle_clock (
    device TEXT PRIMARY KEY,
    time_ns INTEGER NOT NULL,
    quality TEXT NOT NULL,
    offset_ns INTEGER NOT NULL,
    error_ns INTEGER,
    boot TEXT NOT NULL
) STRICT, WITHOUT ROWID;
{_DEVICE_NODE}{tables.HEADS}{tables.CONFLICTS}{tables.OUTBOX}{tables.DEVICE_KNOWLEDGE}{tables.COMMANDS}
{tables.SHADOWS}{tables.ENROLMENT}{tables.REVOCATIONS}{tables.PEOPLE}
{tables.KEY_ROTATIONS}{tables.GENERATIONS}{tables.VEHICLES}{tables.IMPORTS}{tables.DICTIONARIES}
{tables.ALERTS}{tables.PAGE_LOGINS}{tables.LANE_LOG}{tables.ERASURES}{tables.AUDIT}
"""


async def prepare(connection: aiosqlite.Connection, path: Path) -> None:
    """Set an open hub.db up to be read and written. Raises: RegistryError: it is another schema."""
    await connection.execute("PRAGMA journal_mode = WAL")
    await connection.execute("PRAGMA synchronous = FULL")
    await connection.execute("PRAGMA busy_timeout = 5000")
    # What is deleted is no more in the file, also not where nobody looks: it may have been erased on request.
    await connection.execute("PRAGMA secure_delete = ON")
    version = await _version(connection)
    if version == 0:
        await _run(connection, SCHEMA, SCHEMA_VERSION)
    while version in _STEPS:
        await _run(connection, _STEPS[version], version + 1)
        version += 1
    await _require_version(connection, path)


async def prepare_to_read(connection: aiosqlite.Connection, path: Path) -> None:
    """Set an open hub.db up to be read alone. Raises: RegistryError: it is another schema."""
    await connection.execute("PRAGMA query_only = ON")
    await connection.execute("PRAGMA busy_timeout = 5000")
    await _require_version(connection, path)


async def _run(connection: aiosqlite.Connection, statements: str, version: int) -> None:
    """Change the schema, whole or not at all."""
    await connection.executescript(
        f"BEGIN IMMEDIATE; {statements} PRAGMA user_version = {version}; COMMIT;"
    )


async def _version(connection: aiosqlite.Connection) -> int:
    rows = await connection.execute_fetchall("PRAGMA user_version")
    return int(next(iter(rows))[0])


async def _require_version(connection: aiosqlite.Connection, path: Path) -> None:
    version = await _version(connection)
    if version == SCHEMA_VERSION:
        return
    hint = "use the version of backhaul that wrote it, or a newer one"
    if version in _STEPS:
        hint = "start this version's control plane once: backhaul-hub up brings it up to date"
    elif version < SCHEMA_VERSION:
        hint = "move the hub directory aside and make the hub again"
    raise RegistryError(
        f"{path} has schema {version}, this program knows {SCHEMA_VERSION}", hint=hint
    )

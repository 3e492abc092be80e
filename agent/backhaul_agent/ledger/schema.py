"""The ledger's tables, and the checks made before one is trusted."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Container
from contextlib import closing, suppress
from pathlib import Path
from typing import Protocol

import aiosqlite

from backhaul_agent.errors import (
    LedgerCorruptError,
    LedgerForeignError,
    LedgerNewerError,
    LedgerOlderError,
    LedgerStorageError,
    says_damaged,
)
from backhaul_agent.ledger import chain as ledger_chain
from backhaul_agent.ledger import command_rows, dictionary_rows
from backhaul_agent.ledger.command_rows import OLDER_COMMANDS, TO_COLUMNS
from backhaul_agent.ledger.damage import PAGE_BYTES

APPLICATION_ID = 0x424B484C  # "BKHL" in the file's header: this file is a ledger
SCHEMA_VERSION = 6  # goes up with each change of SCHEMA, and only then: `_check_tables`
_NEW_BYTES = "(length(NEW.subject) + coalesce(length(NEW.body), 0))"
_OLD_BYTES = "(length(OLD.subject) + coalesce(length(OLD.body), 0))"

# `messages` has a rowid of its own, so that the oldest of all lanes can be found without
# trusting any clock. `next_seq` is stored: after all messages are forgotten, seqs go on.
# `boot` above 0 names the row of `boots` by whose provisional clock the stamps inside were made: the
# message stays here until they are corrected, or given up (docs/clocks.md).
# `classes` sums up `messages` by value: triggers keep it right, whoever inserts or deletes.
# `t_lo` and `t_hi` are the earliest and latest time of a message's points: history finds it so.
# `evicted` are the seqs given up with a receipt; `ledger.age_index` says when the lanes were how far (ledger/age_index.py).
# `lanes` holds those of former epochs too (docs/adr/0008): their messages may be asked for again.
SCHEMA = f"""
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE lanes (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    next_seq INTEGER NOT NULL DEFAULT 1,
    watermark INTEGER NOT NULL DEFAULT 0,
    confirmed INTEGER NOT NULL DEFAULT 0,
    stream_created TEXT NOT NULL DEFAULT '',
    used_seq INTEGER NOT NULL DEFAULT 0,
    UNIQUE (name, epoch)
);
CREATE TABLE steps (
    lane INTEGER NOT NULL,
    from_seq INTEGER NOT NULL,
    stream_offset INTEGER NOT NULL,
    PRIMARY KEY (lane, from_seq)
) WITHOUT ROWID;
CREATE TABLE messages (
    id INTEGER PRIMARY KEY,
    lane INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    subject TEXT NOT NULL,
    body BLOB NOT NULL,
    value_class INTEGER NOT NULL,
    t_lo INTEGER,
    t_hi INTEGER,
    boot INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX messages_lane_seq ON messages (lane, seq);
CREATE INDEX messages_held ON messages (lane, seq) WHERE boot > 0;
CREATE INDEX messages_class ON messages (value_class);
CREATE INDEX messages_history ON messages (subject, t_lo, t_hi) WHERE t_lo IS NOT NULL;
CREATE TABLE classes (
    value_class INTEGER PRIMARY KEY,
    messages INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0
);
INSERT INTO classes (value_class) VALUES (0), (1), (2), (3), (4);
CREATE TRIGGER messages_in AFTER INSERT ON messages BEGIN
    UPDATE classes SET messages = messages + 1, bytes = bytes + {_NEW_BYTES}
    WHERE value_class = NEW.value_class;
END;
CREATE TRIGGER messages_changed AFTER UPDATE OF body ON messages BEGIN
    UPDATE classes SET bytes = bytes + {_NEW_BYTES} - {_OLD_BYTES}
    WHERE value_class = NEW.value_class;
END;
CREATE TRIGGER messages_out AFTER DELETE ON messages BEGIN
    UPDATE classes SET messages = messages - 1, bytes = bytes - {_OLD_BYTES}
    WHERE value_class = OLD.value_class;
END;
CREATE TABLE staged (
    id INTEGER PRIMARY KEY,
    node TEXT NOT NULL,
    points INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    body BLOB NOT NULL,
    boot INTEGER NOT NULL DEFAULT 0,
    clock INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE boots (
    number INTEGER PRIMARY KEY,
    boot TEXT NOT NULL UNIQUE,
    provisional_ns INTEGER NOT NULL,
    anchor_ns INTEGER,
    error_ns INTEGER,
    at_ns INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE quarantined (
    id INTEGER PRIMARY KEY,
    lane TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    subject TEXT NOT NULL,
    body BLOB,
    reason TEXT NOT NULL,
    time_ns INTEGER NOT NULL
);
CREATE UNIQUE INDEX quarantined_lane_seq ON quarantined (lane, epoch, seq) WHERE seq > 0;
CREATE TABLE heads (
    parent TEXT NOT NULL,
    node TEXT NOT NULL,
    type TEXT NOT NULL,
    key TEXT NOT NULL,
    crc INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (parent, node, type, key)
) WITHOUT ROWID;
CREATE TABLE evicted (
    lane INTEGER NOT NULL,
    lo INTEGER NOT NULL,
    hi INTEGER NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (lane, lo)
) WITHOUT ROWID;
CREATE TABLE ages (time_ns INTEGER PRIMARY KEY, next_seqs TEXT NOT NULL);
{command_rows.SCHEMA}{ledger_chain.SCHEMA}{dictionary_rows.SCHEMA}
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""  # noqa: S608 - constants


TABLES = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"  # indexes and triggers, too

# What brings a ledger of a schema to the next one, in place.
MIGRATIONS = {2: OLDER_COMMANDS, 3: ledger_chain.SCHEMA, 4: TO_COLUMNS, 5: dictionary_rows.SCHEMA}


class Opener(Protocol):
    """Opens the database: a seam where tests put a disk that fails."""

    async def __call__(self, path: Path) -> aiosqlite.Connection:
        """Return an open connection in autocommit mode."""
        ...


async def open_file(path: Path) -> aiosqlite.Connection:
    """Open (or create) the file at ``path`` in autocommit mode: transactions are spelled out."""
    # A file that cannot be opened must fail here: aiosqlite's thread outlives a failed connect and
    # complains into a loop that may be gone by then.
    sqlite3.connect(path).close()
    return await aiosqlite.connect(path, isolation_level=None, timeout=5.0)


async def prepare(
    db: aiosqlite.Connection, path: Path, device: str, epoch: Callable[[], int]
) -> tuple[int, bool]:
    """Set the connection up, create the tables in an empty file, check them in any other.

    Returns the ledger's epoch, and whether it was created just now.

    Raises:
        LedgerError: the file cannot be this device's ledger; its hint says what to do.
    """
    try:
        return await _prepare(db, path, device, epoch)
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        if says_damaged(error):
            raise LedgerCorruptError(path, f"SQLite cannot read it: {error}") from error
        raise LedgerStorageError(path, "opening", error) from error


async def check_log(db: aiosqlite.Connection, path: Path, committed: int) -> str:
    """Compare SQLite's log with the committed position; return in words the part that is gone.

    Where something is, pages may be of different moments, so the whole file is looked through, once.

    Raises:
        LedgerCorruptError: what is left makes no sense.
        sqlite3.Error: it cannot be read now.
    """
    [(_, found, _)] = await db.execute_fetchall("PRAGMA wal_checkpoint(PASSIVE)")
    if found >= committed:
        return ""
    [(said,)] = await db.execute_fetchall("PRAGMA quick_check(1)")
    if said != "ok":
        raise LedgerCorruptError(path, f"its log is cut short, and SQLite says: {said}")
    return f"the ledger's log is cut short: {found} pages of {committed}"


async def _prepare(
    db: aiosqlite.Connection, path: Path, device: str, epoch: Callable[[], int]
) -> tuple[int, bool]:
    application = await _scalar(db, "PRAGMA application_id")
    version = await _scalar(db, "PRAGMA user_version")
    tables = await _scalar(db, "SELECT count(*) FROM sqlite_master")
    fresh = not application and not tables
    if not fresh:
        version = await _check_tables(db, path, device, (application, version))
    if not fresh and application != APPLICATION_ID:
        raise LedgerForeignError(path, "this is no ledger", hint="check ledger.path")
    if version > SCHEMA_VERSION:
        raise LedgerNewerError(
            path,
            f"its schema is {version}, this backhaul knows up to {SCHEMA_VERSION}",
            hint="install the backhaul that wrote it",
        )
    if not fresh and version < min(MIGRATIONS):
        raise LedgerOlderError(
            path,
            f"its schema is {version}, this backhaul needs {SCHEMA_VERSION}",
            hint="let the backhaul that wrote it send everything, then move the file away: "
            "a new ledger gets a new epoch",
        )
    await set_pragmas(db)
    if fresh:
        await db.executescript("BEGIN IMMEDIATE;" + SCHEMA)
        await db.executemany(
            "INSERT INTO meta VALUES (?, ?)", [("device", device), ("epoch", draw_epoch(epoch))]
        )
        await db.execute("COMMIT")
    else:
        for number in range(version, SCHEMA_VERSION):
            done = f"PRAGMA user_version = {number + 1}; COMMIT;"
            try:
                await db.executescript(f"BEGIN IMMEDIATE; {MIGRATIONS[number]} {done}")
            except sqlite3.IntegrityError as error:
                problem = f"a row is none that schema {number + 1} can have: {error}"
                raise LedgerCorruptError(path, problem) from error
    return await _check_meta(db, path, device), fresh


async def set_pragmas(db: aiosqlite.Connection) -> None:
    """Set the options of a connection, which the file does not keep."""
    # FULL: the WAL is synced at every commit, so "kept" survives a power cut.
    await db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    await db.execute("PRAGMA journal_mode = WAL")
    await db.execute("PRAGMA synchronous = FULL")
    await db.execute("PRAGMA journal_size_limit = 4194304")
    await db.execute("PRAGMA cache_size = -512")  # KiB: the agent shares a small machine
    await db.execute("PRAGMA temp_store = MEMORY")
    # Some builds overwrite what is deleted with zeros: every message would be written twice.
    await db.execute("PRAGMA secure_delete = 0")
    await db.execute("PRAGMA cell_size_check = 1")  # a damaged page is noticed as it is read


async def _check_tables(
    db: aiosqlite.Connection, path: Path, device: str, header: tuple[int, int]
) -> int:
    """Compare the stored DDL, to the letter, with the header: each says whether the other is spoilt.

    Returns the schema that the tables are of. It may be older than the header's where files of two
    moments were put together: then it is whole, and is brought up from there.
    """
    found = {sql for (sql,) in await db.execute_fetchall(TABLES)}
    application, version = header
    ours = _made([SCHEMA])
    if application == APPLICATION_ID and min(MIGRATIONS) <= version <= SCHEMA_VERSION:
        older = _schema_of(found, ours, version)
        if older == version or (older is not None and await _is_sound(db)):
            return older
        if version == SCHEMA_VERSION:
            raise LedgerCorruptError(path, "what is written of its tables is not what it was")
    if ours == found:
        await _check_meta(db, path, device)
        said = f"its header says application {application:#x}, schema {version}"
        raise LedgerCorruptError(
            path, f"{said}; its tables are a ledger's, schema {SCHEMA_VERSION}"
        )
    return version


def _schema_of(found: set[str], ours: set[str], newest: int) -> int | None:
    """Return of which schema tables are, from a newest one down; None: of none of these.

    It is the one whose migrations make of them what a new ledger has.
    """
    if newest == SCHEMA_VERSION and ours <= found:
        return newest
    # Tables before what refers to them: indexes and triggers.
    written = sorted(found, key=lambda sql: not sql.startswith("CREATE TABLE"))
    for version in range(min(newest, SCHEMA_VERSION - 1), min(MIGRATIONS) - 1, -1):
        steps = [MIGRATIONS[number] for number in range(version, SCHEMA_VERSION)]
        with suppress(sqlite3.Error, ValueError):
            if ours <= _made([*(f"{sql};" for sql in written), *steps]):
                return version
    return None


def _made(scripts: list[str]) -> set[str]:
    """Return the DDL of the tables that scripts make."""
    with closing(sqlite3.connect(":memory:")) as made:
        for script in scripts:
            made.executescript(script)
        return {sql for (sql,) in made.execute(TABLES)}


async def _is_sound(db: aiosqlite.Connection) -> bool:
    [(said,)] = await db.execute_fetchall("PRAGMA quick_check(1)")
    return bool(said == "ok")


async def _check_meta(db: aiosqlite.Connection, path: Path, device: str) -> int:
    rows = await db.execute_fetchall("SELECT name, value FROM meta")
    meta = {str(name): value for name, value in rows}
    epoch = meta.get("epoch")
    if not isinstance(epoch, int) or not 0 < epoch < 1 << 32:
        raise LedgerCorruptError(path, "it holds no epoch")
    if meta.get("device") != device:
        raise LedgerForeignError(
            path,
            f"it belongs to device {meta.get('device')!r}, not {device!r}",
            hint="give every device a ledger of its own; where this machine had that identity and was enrolled anew: "
            "backhaul-agent adopt-ledger",
        )
    return epoch


def draw_epoch(epoch: Callable[[], int], known: Container[int] = ()) -> int:
    """Draw until the epoch is a new nonzero u32: 0 means "keeps no lane" on the wire."""
    for _ in range(100):
        if (value := epoch() & 0xFFFF_FFFF) and value not in known:
            return value
    raise ValueError("the source of randomness returns nothing new")


async def _scalar(db: aiosqlite.Connection, query: str) -> int:
    rows = list(await db.execute_fetchall(query))
    return int(rows[0][0])

"""A ledger that is damaged: how that is known, and where its file goes.

SQLite notices a page that makes no sense once it reads it, and says so. What it does not notice is the end
of its log: recovery stops at the first frame whose checksum is wrong, or where the file ends, and what was
committed behind that is gone without a word. So at the start the frames that SQLite found are compared
with those that were committed, by the frames' own headers and by the log's index, which outlives a kill.

Formats: https://www.sqlite.org/fileformat.html, https://www.sqlite.org/walformat.html. NOT known of: a log
cut short in a power cut, where the index is no newer than the disk, and bits in a row that no checksum
covers (the subject of a single point).
What may look like a log cut short, and costs a new epoch only: a commit that was taken back, as its sync
failed, and partly written over; frames that a power cut kept without those before them.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import struct
from pathlib import Path
from typing import BinaryIO

import aiosqlite

from backhaul_codec.subjects import SubjectError, node_of_lane

PAGE_BYTES = 4096  # of every ledger
KEPT_MAX = 3  # damaged ledgers: where one goes after the other, the first has most
LOST_MAX = 1 << 16  # seqs at a lane's end that pages SQLite says nothing of could have held
SEQ_MAX = (1 << 63) - 1
# What is taken for granted of rows that no checksum covers, in tables that are never large. What is not
# here can be done without: the hub tells its watermark again.
_KINDS = {
    "lanes": {"name": "text", "epoch": "integer", "stream_created": "text"},
    "steps": {"lane": "integer", "from_seq": "integer", "stream_offset": "integer"},
    "classes": {"messages": "integer", "bytes": "integer"},
    "chains": {"seq": "integer", "hash": "blob"},
    "evicted": {"lane": "integer", "lo": "integer", "hi": "integer", "reason": "text"},
    "commands": {
        "id": "text", "name": "text", "params": "blob", "sent_ns": "integer",
        "deadline_ns": "integer", "runs": "integer", "ended_ns": "integer",
        "code": "text", "error": "blob", "result": "blob",
    },
}  # fmt: skip
_MAGIC = 0x377F0682  # odd: checksums are of words with the highest byte first
_NO_SALTS = bytes(8)
_SCHEMA_FORMAT_MAX = 4
_FILE_HEADER = struct.Struct(">18x2B24xI20xI")  # ..; to write, to read; ..; schema; ..; whose it is
_LOG_HEADER = struct.Struct(">4I8s2I")  # magic, version, page size, checkpoint; salts; checksum
_FRAME = struct.Struct(">2I8s2I")  # page, size of the database after a commit or 0; salts; checksum
_INDEX = struct.Struct("=3I2BH4I8s2I")  # .., page size; frames committed; ..; salts; checksum


def header_is_spoilt(path: Path, application_id: int) -> bool:
    """Tell whether a ledger's file has format numbers that no SQLite writes.

    SQLite itself takes such a file for one of a later SQLite: it says "readonly" or "unsupported".
    """
    try:
        with path.open("rb") as file:
            fields = _FILE_HEADER.unpack(file.read(_FILE_HEADER.size))
    except (OSError, struct.error):
        return False
    writes, reads, schema_format, application = fields
    known = {writes, reads} <= {1, 2} and schema_format <= _SCHEMA_FORMAT_MAX
    return application == application_id and not known


def lacks_tables(error: Exception) -> bool:
    """Tell whether an error of SQLite means that a table or column is not there."""
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR


async def spoilt_rows(db: aiosqlite.Connection) -> str:
    """Name a column of the small tables with a value that is never written there, if there is one."""
    # Not by an index, which tells what a row was: what is read later is the row.
    looks = (
        f"SELECT '{table}.{column}' WHERE EXISTS "  # noqa: S608 - constants
        f"(SELECT 1 FROM {table} NOT INDEXED WHERE typeof({column}) <> '{kind}')"
        for table, columns in _KINDS.items()
        for column, kind in columns.items()
    )
    rows = await db.execute_fetchall(" UNION ALL ".join(looks))
    return ", ".join(column for (column,) in rows)


async def spoilt_lane(db: aiosqlite.Connection) -> str:
    """Name the error in the lanes: in a name, or in how far one says that it is.

    Each seq has a message, or was confirmed, set aside or given up. Where none of the last ones has, and no
    damage that SQLite overlooks could have taken so many, receipts for them would be written for ever.
    """
    rows = await db.execute_fetchall(
        "SELECT name, epoch, next_seq - 1, "
        # Up to the greatest number: what damage made a text or bytes of comes after that.
        "coalesce((SELECT max(seq) FROM messages WHERE lane = lanes.id AND seq <= ?), 0), "
        "coalesce(CAST(max(confirmed, watermark) AS INTEGER), 0), "
        "coalesce((SELECT max(hi) FROM evicted WHERE lane = lanes.id), 0), "
        "coalesce((SELECT max(seq) FROM quarantined "
        "WHERE lane = lanes.name AND epoch = lanes.epoch AND seq > 0 AND seq <= ?), 0) FROM lanes",
        (SEQ_MAX, SEQ_MAX),
    )
    seen: set[tuple[str, int]] = set()
    for name, epoch, told, last, *gone in rows:
        if (name, epoch) in seen:
            return f"it has lane {name} of epoch {epoch} twice"
        seen.add((name, epoch))
        try:
            node_of_lane(name)
        except SubjectError as error:
            return str(error)
        if told - max(last, *gone) > LOST_MAX or last - told > LOST_MAX:
            return f"lane {name} ends at seq {told}, says its row, and at {last} by its messages"
    return ""


def frames_committed(path: Path) -> int:
    """Return how many frames the log of the ledger at ``path`` has, or had, up to its last commit.

    To be asked before SQLite opens the ledger, which makes the index anew.
    """
    indexed, salts = _indexed(path.with_name(path.name + "-shm"))
    try:
        with _log_of(path).open("rb") as log:
            header = log.read(_LOG_HEADER.size)
            if len(header) < _LOG_HEADER.size:
                return indexed
            _, _, page_bytes, _, written, *_ = _LOG_HEADER.unpack(header)
            if not _is_sound(header):  # to SQLite such a log is empty, whatever stands in it
                return max(_in_log(log, PAGE_BYTES), indexed)
            return max(_in_log(log, page_bytes, written), indexed if salts == written else 0)
    except FileNotFoundError:
        return indexed


def asides(path: Path) -> list[Path]:
    """Return the damaged ledgers that were kept of the one at ``path``."""
    return [place for place in _places(path) if place.exists()]


def set_aside(path: Path) -> Path | None:
    """Move the ledger's files out of the way; return where they are, None where they are no more.

    The first ones that were set aside are kept, and the last, each if the disk has as much space again. The
    file goes first: a log without one means nothing to SQLite, so that a crash in between does no harm.

    Raises:
        OSError: it cannot be moved.
    """
    there = [file for file in (path, _log_of(path)) if file.exists()]
    *_, last = places = _places(path)
    kept = next((place for place in places if not place.exists()), last)
    for old in (kept, _log_of(kept)):
        old.unlink(missing_ok=True)
    fits = shutil.disk_usage(path.parent).free > sum(file.stat().st_size for file in there)
    for file in there:
        if fits:
            file.rename(kept.with_name(kept.name + file.name.removeprefix(path.name)))
        else:
            file.unlink()
    path.with_name(path.name + "-shm").unlink(missing_ok=True)
    _sync(path.parent)
    return kept if fits else None


def _places(path: Path) -> list[Path]:
    numbers = ["", *(f".{number}" for number in range(2, KEPT_MAX + 1))]
    return [path.with_name(f"{path.name}.damaged{number}") for number in numbers]


def _log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _indexed(path: Path) -> tuple[int, bytes]:
    """Return how many frames an index knows, and by which salts; both of its headers must agree."""
    try:
        with path.open("rb") as index:
            first, second = (index.read(_INDEX.size) for _ in range(2))
    except FileNotFoundError:
        return 0, b""
    if first != second or len(first) < _INDEX.size:
        return 0, b""
    fields = _INDEX.unpack(first)
    return fields[6], fields[10]


def _is_sound(header: bytes) -> bool:
    """Whether the header of a log has the checksum that it should have."""
    magic, *_, first, second = _LOG_HEADER.unpack(header)
    words = struct.unpack(f"{'>' if magic & 1 else '<'}6I", header[:24])
    one = two = 0
    for even, odd in zip(words[::2], words[1::2], strict=True):
        one = (one + even + two) & 0xFFFFFFFF
        two = (two + odd + one) & 0xFFFFFFFF
    return magic & ~1 == _MAGIC and (one, two) == (first, second)


def _in_log(log: BinaryIO, page_bytes: int, salts: bytes = _NO_SALTS) -> int:
    """Return the number of the last whole frame with these salts that ends a commit.

    Without salts, those of the first frame that has any.
    """
    committed = 0
    whole = (os.fstat(log.fileno()).st_size - log.tell()) // (_FRAME.size + page_bytes)
    for frames in range(1, whole + 1):
        _, size_after, found, *_ = _FRAME.unpack(log.read(_FRAME.size))
        if salts == _NO_SALTS:
            salts = found
        if found == salts and size_after:
            committed = frames
        log.seek(page_bytes, os.SEEK_CUR)
    return committed


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

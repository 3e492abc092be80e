"""The rows of imports in hub.db: how far each recording is kept, and which hours are imported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass

import msgspec
from nats.errors import Error as NatsError

from backhaul_codec.assurance.completeness import HOUR_NS
from backhaul_codec.subjects import IMPORT_STREAM
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import HubError
from backhaul_hub.nats.jetstream import JetStreamApi

# Of an import that goes on something is noted every few seconds; of one that nobody wants any more
# nothing is said for ever.
_GOES_ON_NS = 120 * 1_000_000_000
_TOLD_NS = 7 * 86_400 * 1_000_000_000
LOST = "stream IMPORT lost messages that were imported: import them again, with --again"
_PUT = "INSERT OR REPLACE INTO import_source VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


@dataclass(frozen=True, slots=True)
class Source:
    """How far a recording of one device is kept: the rows of `device` in one file, and its growth.

    ``total``: rows there were when it was looked at. ``rows``, ``digest``: kept, and what stood in them.
    ``going``, ``going_digest``, ``going_epoch``, ``going_hours``: up to which row a block is being
    published, with what; ``going`` equal to ``rows``: none is.
    """

    source: str
    device: str
    file: str
    total: int
    rows: int = 0
    digest: str = ""
    points: int = 0
    going: int = 0
    going_digest: str = ""
    going_epoch: int = 0
    going_hours: str = "[]"
    updated_ns: int = 0


async def source_of_db(registry: Registry, source: str) -> Source | None:
    """Return the record of a recording. Raises: RegistryError."""
    rows = await registry.fetch("SELECT * FROM import_source WHERE source = ?", (source,))
    return next((Source(*row) for row in rows), None)


async def epochs_of(registry: Registry, device: str) -> dict[int, str]:
    """Return the epochs that imports of a device have taken, and for which rows. Raises: RegistryError."""
    query = "SELECT epoch, stretch FROM import_epoch WHERE device = ?"
    return {row[0]: row[1] for row in await registry.fetch(query, (device,))}


async def imported_hours(registry: Registry, device: str) -> dict[int, bool]:
    """Return the hours (ns since 1970) that were imported of a device, and whether wholly.

    Raises:
        RegistryError: the database refused.
    """
    hours = await registry.fetch("SELECT hour FROM import_hour WHERE device = ?", (device,))
    found = {row[0] * HOUR_NS: True for row in hours}
    going = "SELECT going_hours FROM import_source WHERE device = ? AND going > rows"
    for (text,) in await registry.fetch(going, (device,)):
        found |= {hour * HOUR_NS: False for hour in msgspec.json.decode(text, type=list[int])}
    return found


async def imported_hours_of_each(registry: Registry, devices: str) -> dict[str, dict[int, bool]]:
    """Return the same of several devices; `devices` is a JSON array of their ids.

    Raises:
        RegistryError: the database refused.
    """
    found: dict[str, dict[int, bool]] = {}
    these = "device IN (SELECT value FROM json_each(?))"
    query = f"SELECT device, hour FROM import_hour WHERE {these}"  # noqa: S608
    for device, hour in await registry.fetch(query, (devices,)):
        found.setdefault(device, {})[hour * HOUR_NS] = True
    going = f"SELECT device, going_hours FROM import_source WHERE {these} AND going > rows"  # noqa: S608
    for device, text in await registry.fetch(going, (devices,)):
        hours = msgspec.json.decode(text, type=list[int])
        found.setdefault(device, {}).update({hour * HOUR_NS: False for hour in hours})
    return found


async def imports_of_each(registry: Registry) -> dict[str, tuple[int, int]]:
    """Return, by device, how many recordings were imported and when any of them was noted last (ns).

    Whatever changes `imported_hours` changes this.

    Raises:
        RegistryError: the database refused.
    """
    query = "SELECT device, count(*), max(updated_ns) FROM import_source GROUP BY device"
    return {row[0]: (row[1], row[2]) for row in await registry.fetch(query)}


async def unfinished(registry: Registry, now_ns: int) -> str:
    """Say which recordings are not kept wholly, and nobody goes on with; empty: none of this week.

    Raises:
        RegistryError: the database refused.
    """
    rows = await registry.fetch(
        "SELECT device, file, rows, total FROM import_source"
        " WHERE rows < total AND updated_ns BETWEEN ? AND ? ORDER BY device, file",
        (now_ns - _TOLD_NS, now_ns - _GOES_ON_NS),
    )
    if not rows:
        return ""
    device, file, kept, total = rows[0]
    more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    return f"{file} of {device}, {kept} of {total} rows{more}"


def put(source: Source) -> list[RowChange]:
    """Return the statements that note a recording."""
    return [RowChange(_PUT, [astuple(source)])]


def take_epoch(device: str, epoch: int, stretch: str) -> RowChange:
    """Return the statement that notes which rows have an epoch."""
    return RowChange(
        "INSERT OR REPLACE INTO import_epoch VALUES (?, ?, ?)", [(device, epoch, stretch)]
    )


def note_stream(created: str, seq: int) -> RowChange:
    """Return the statement that notes how far the stream went at least, and which one it was."""
    return RowChange(
        "INSERT OR REPLACE INTO import_stream VALUES (?, ?, ?)", [(IMPORT_STREAM, created, seq)]
    )


async def noted_stream(registry: Registry) -> tuple[str, int] | None:
    """Return when the stream was made that was published to, and how far it went at least. Raises: RegistryError."""
    rows = await registry.fetch("SELECT created, seq FROM import_stream")
    return next(((created, seq) for created, seq in rows), None)


async def lost(noted: tuple[str, int] | None, api: JetStreamApi) -> bool:
    """Tell whether the stream is another one than was published to, or lacks its end.

    ``noted``: as hub.db has it.

    Raises:
        HubError: the server refuses, or does not answer.
    """
    if noted is None:
        return False
    info = await api.stream_info(IMPORT_STREAM)
    created, seq = noted
    return info is None or info["created"] != created or info["state"]["last_seq"] < seq


async def trouble(registry: Registry, api: JetStreamApi, now_ns: int) -> str:
    """Return the error in imports; empty: none, or nobody can tell now."""
    try:
        return (
            LOST
            if await lost(await noted_stream(registry), api)
            else await unfinished(registry, now_ns)
        )
    except (HubError, NatsError):
        return ""  # that the server does not answer is a condition of its own


def add_hours(device: str, hours: Mapping[int, int]) -> RowChange:
    """Return the statement that notes readings of hours since 1970."""
    return RowChange(
        "INSERT INTO import_hour VALUES (?, ?, ?)"
        " ON CONFLICT (device, hour) DO UPDATE SET points = points + excluded.points",
        [(device, hour, points) for hour, points in hours.items()],
    )

"""The rows of commands in hub.db."""

from __future__ import annotations

import json
from dataclasses import astuple, fields
from typing import TYPE_CHECKING, Any

from backhaul_hub.commands.command import Command, Key
from backhaul_hub.commands.outcome import DOUBT_RANK, UNHEARD, Doubt, Heard, State
from backhaul_hub.db.change import Change

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from backhaul_hub.db.store import Registry
    from backhaul_hub.questions import Commands

_COLUMNS = ", ".join(each.name for each in fields(Command))
# Two tasks store commands; whichever comes later, a command never goes back.
_PUT = (
    f"INSERT INTO command ({_COLUMNS}, rank) "  # noqa: S608 - constants
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (device, id) DO UPDATE SET state = excluded.state, sent_ns = excluded.sent_ns, "
    "accepted_ns = excluded.accepted_ns, ended_ns = excluded.ended_ns, said = excluded.said, "
    "rank = excluded.rank WHERE excluded.rank > command.rank"
)
# All that another epoch knew before its last mark has come: what had its deadline before is in no doubt.
_DOUBT_EXPIRED = (
    "UPDATE command SET state = ?1, said = ?2, rank = ?3 "
    "WHERE device = ?4 AND state = ?5 AND json_extract(said, '$.error') = ?6 AND deadline_ns > "
    "coalesce((SELECT max(time_ns) FROM mark WHERE device = ?4 AND epoch <> ?7), 0) "
    "AND queued_ns <= ?8"
)
_DOUBT_OPEN = (
    "UPDATE command SET said = ? WHERE device = ? AND id = ? AND state IN ('queued', 'sent')"
)
_SECOND_NS = 1_000_000_000
_DAY_NS = 86_400 * _SECOND_NS


def put(commands: Iterable[Command]) -> Change:
    """Return the statement that stores commands as they are now."""
    return Change(_PUT, [(*astuple(each), each.rank) for each in commands])


def put_late(key: Key, heard: Heard) -> Change:
    """Return the statement that stores a vehicle's word on a command that was over for the hub."""
    return Change(
        "UPDATE command SET state = ?, ended_ns = ?, said = ?, rank = ? "
        "WHERE device = ? AND id = ? AND rank < ?",
        [(heard.state, heard.time_ns, heard.said, heard.rank, *key, heard.rank)],
    )


def put_doubt(doubt: Doubt, open_: Iterable[Command]) -> list[Change]:
    """Return the statements that store a doubt: of open commands, and of those that had expired."""
    expired = (State.EXPIRED, UNHEARD, doubt.epoch, doubt.until_ns)
    interrupted = (State.INTERRUPTED, doubt.said, DOUBT_RANK, doubt.device)
    keys = [(doubt.said, *each.key) for each in open_ if each.doubted]
    return [Change(_DOUBT_EXPIRED, [interrupted + expired]), Change(_DOUBT_OPEN, keys)]


def forget(now_ns: int, days_max: float, rows_max: int) -> Change:
    """Return the statement that forgets what is over, and too old or one too many."""
    return Change(
        "DELETE FROM command WHERE ended_ns > 0 AND "
        "(ended_ns < ? OR number <= (SELECT max(number) FROM command) - ?)",
        [(now_ns - round(days_max * _DAY_NS), rows_max)],
    )


async def restore(registry: Registry) -> list[Command]:
    """Return the commands that are not over, oldest first. Raises: RegistryError."""
    return await _fetch(registry, "WHERE ended_ns = 0 ORDER BY number", ())


async def find(registry: Registry, keys: Iterable[Key]) -> list[Command]:
    """Return those of some commands that are known. Raises: RegistryError."""
    found: list[Command] = []
    for key in keys:
        found += await _fetch(registry, "WHERE device = ? AND id = ?", key)
    return found


async def doubted(registry: Registry, doubt: Doubt) -> list[Command]:
    """Return the commands that are over and in doubt since an epoch began. Raises: RegistryError."""
    where = "WHERE device = ? AND state = ? AND said = ? AND ended_ns > 0"
    return await _fetch(registry, where, (doubt.device, State.INTERRUPTED, doubt.said))


async def newest(
    registry: Registry, which: Commands, devices: Collection[str] | None = None
) -> list[Command]:
    """Return the newest commands asked for, oldest first; of `devices` only, where they are given.

    Raises:
        RegistryError: the database refused.
    """
    where = (
        "WHERE ?1 IN ('', device) AND ?2 IN ('', id) AND (NOT ?3 OR ended_ns = 0) "
        "AND (?5 IS NULL OR device IN (SELECT value FROM json_each(?5))) "
        "ORDER BY number DESC LIMIT ?4"
    )
    only = None if devices is None else json.dumps(list(devices))
    values = (which.device or "", which.id or "", which.unfinished, which.limit, only)
    rows = await _fetch(registry, where, values)
    return rows[::-1]


async def _fetch(registry: Registry, where: str, values: tuple[Any, ...]) -> list[Command]:
    rows = await registry.fetch(f"SELECT {_COLUMNS} FROM command {where}", values)  # noqa: S608
    commands = [Command(*row) for row in rows]
    for command in commands:
        command.state = State(command.state)
    return commands

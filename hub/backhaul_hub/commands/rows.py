"""The rows of commands in hub.db."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import fields
from typing import Any

from backhaul_codec.protocol.command_errors import ErrorCode
from backhaul_hub.commands.command import Command, Key
from backhaul_hub.commands.outcome import DOUBT_RANK, By, Doubt, Heard, Outcome, State
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.store import Registry
from backhaul_hub.questions import CommandsQuestion

# A command's fields, and at the end those of its outcome.
_FIELDS = [each.name for each in fields(Command)][:-1]
_OUTCOME = ("said_by", "code", "error", "result", "runs", "doubt")
_COLUMNS = ", ".join((*_FIELDS, *_OUTCOME))
_SAID = ", ".join(f"{column} = ?" for column in _OUTCOME)
_NEW = ", ".join(
    f"{column} = excluded.{column}"
    for column in ("state", "sent_ns", "accepted_ns", "ended_ns", *_OUTCOME, "rank")
)
# Two tasks store commands; whichever comes later, a command never goes back.
_PUT = (
    f"INSERT INTO command ({_COLUMNS}, rank) "  # noqa: S608 - constants
    f"VALUES (?{', ?' * len(_FIELDS + list(_OUTCOME))}) "
    f"ON CONFLICT (device, id) DO UPDATE SET {_NEW} WHERE excluded.rank > command.rank"
)
# All that another epoch knew before its last mark has come: what had its deadline before is in no doubt.
_DOUBT_EXPIRED = (
    f"UPDATE command SET {_SAID}, state = ?, rank = ? "  # noqa: S608 - constants
    "WHERE device = ? AND state = 'expired' AND said_by = 'hub' AND code = 'unheard' "
    "AND deadline_ns > coalesce((SELECT max(time_ns) FROM mark "
    "WHERE mark.device = command.device AND epoch <> ?), 0) AND queued_ns <= ?"
)
_DOUBT_OPEN = (
    f"UPDATE command SET {_SAID} "  # noqa: S608 - constants
    "WHERE device = ? AND id = ? AND state IN ('queued', 'sent')"
)
_SECOND_NS = 1_000_000_000
_DAY_NS = 86_400 * _SECOND_NS


def put(commands: Iterable[Command]) -> RowChange:
    """Return the statement that stores commands as they are now."""
    return RowChange(
        _PUT,
        [
            (*(getattr(each, name) for name in _FIELDS), *each.outcome, each.rank)
            for each in commands
        ],
    )


def put_late(key: Key, heard: Heard) -> RowChange:
    """Return the statement that stores a vehicle's word on a command that was over for the hub."""
    return RowChange(
        f"UPDATE command SET {_SAID}, state = ?, ended_ns = ?, rank = ? "  # noqa: S608 - constants
        "WHERE device = ? AND id = ? AND rank < ?",
        [(*heard.outcome, heard.state, heard.time_ns, heard.rank, *key, heard.rank)],
    )


def put_doubt(doubt: Doubt, open_: Iterable[Command]) -> list[RowChange]:
    """Return the statements that store a doubt: of open commands, and of those that had expired."""
    said = doubt.outcome
    expired = (*said, State.INTERRUPTED, DOUBT_RANK, doubt.device, doubt.epoch, doubt.until_ns)
    keys = [(*said, *each.key) for each in open_ if each.doubted]
    return [RowChange(_DOUBT_EXPIRED, [expired]), RowChange(_DOUBT_OPEN, keys)]


def forget(now_ns: int, days_max: float, rows_max: int) -> RowChange:
    """Return the statement that forgets what is over, and too old or one too many."""
    return RowChange(
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
    where = "WHERE device = ? AND state = ? AND doubt = ? AND ended_ns > 0"
    return await _fetch(registry, where, (doubt.device, State.INTERRUPTED, doubt.epoch))


async def newest(
    registry: Registry, which: CommandsQuestion, devices: Collection[str] | None = None
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


async def listed(
    registry: Registry, question: CommandsQuestion, devices: Collection[str] | None = None
) -> dict[str, Any]:
    """Return the newest commands as they are stored, of these devices or (None) of all."""
    found = await newest(registry, question, devices)
    return {"commands": [command.told() for command in found]}


async def _fetch(registry: Registry, where: str, values: tuple[Any, ...]) -> list[Command]:
    rows = await registry.fetch(f"SELECT {_COLUMNS} FROM command {where}", values)  # noqa: S608
    commands = []
    for row in rows:
        command = Command(*row[: len(_FIELDS)])
        command.state = State(command.state)
        by, code, *rest = row[len(_FIELDS) :]
        command.outcome = Outcome(By(by), ErrorCode(code), *rest)
        commands.append(command)
    return commands

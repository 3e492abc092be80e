"""The rows of alerts in hub.db: alerts, notices and their numbers, silences, and the position in TWIN_EVENTS."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from backhaul_hub.alert_settings import AlertsSection
from backhaul_hub.alerts.alert import AlertKey, AlertRecord
from backhaul_hub.alerts.plan import Notice, ToldSoFar
from backhaul_hub.alerts.silences import AlertSilence
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.store import Registry
from backhaul_hub.questions import AlertsQuestion

_DAY_NS = 86_400 * 1_000_000_000
_ALERT = (
    "id, source, device, name, about, severity, text, hint, since_ns, heard_ns, seen_ns, late, ended_ns,"
    " ended_why, acked_ns, acked_by, note"
)
_RECENT_MAX = 10_000
_NOTICES_DAYS = 30


class Position(NamedTuple):
    """How far a stream is read."""

    created: str
    """When the stream was made, as the server says it; another one is another stream."""
    seq: int


class UnsentNotice(NamedTuple):
    """A notice that was not sent, and the message that it was put into; empty: into none yet."""

    notice: Notice
    message: str


def alert_changes(alerts: Iterable[AlertRecord]) -> list[RowChange]:
    """Return the statements that write alerts."""
    rows = [
        (
            *(
                each.id,
                *each.key,
                each.severity,
                each.text,
                each.hint,
                each.since_ns,
                each.heard_ns,
            ),
            *(each.seen_ns, int(each.late), each.ended_ns, each.ended_why),
            *(each.acked_ns, each.acked_by, each.note),
        )
        for each in alerts
    ]
    marks = ", ".join("?" * 17)
    return [RowChange(f"INSERT OR REPLACE INTO alert VALUES ({marks})", rows)] if rows else []  # noqa: S608


def told_changes(told: Mapping[str, Mapping[str, ToldSoFar]]) -> list[RowChange]:
    """Return the statements that write how often channels were told of alerts, by id and channel; an empty mapping deletes them."""
    if not told:
        return []
    rows = [(id_, channel, *each) for id_, some in told.items() for channel, each in some.items()]
    gone = [(id_,) for id_, some in told.items() if not some]
    return [
        RowChange("INSERT OR REPLACE INTO alert_told VALUES (?, ?, ?, ?)", rows),
        RowChange("DELETE FROM alert_told WHERE alert = ?", gone),
    ]


def silence_changes(silences: Iterable[AlertSilence]) -> list[RowChange]:
    """Return the statements that write silences."""
    rows = [
        (
            *(each.id, each.place, each.name, each.from_ns, each.until_ns, each.who, each.why),
            *(each.ended_ns, each.ended_by),
        )
        for each in silences
    ]
    statement = "INSERT OR REPLACE INTO alert_silence VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
    return [RowChange(statement, rows)] if rows else []


def notice_changes(notices: Iterable[Notice]) -> list[RowChange]:
    """Return the statements that put notices into the outbox; one that stands there already stays as it is."""
    rows = [
        (each.id, each.channel, each.kind, _packed(each.alert), each.made_ns) for each in notices
    ]
    statement = (
        "INSERT OR IGNORE INTO alert_notice (id, channel, kind, alert, made_ns, message, sent_ns)"
        " VALUES (?, ?, ?, ?, ?, '', 0)"
    )
    return [RowChange(statement, rows)] if rows else []


def leaving(message: str, notices: Iterable[Notice]) -> RowChange:
    """Return the statement that says into which message notices were put: before it leaves."""
    return RowChange(
        "UPDATE alert_notice SET message = ? WHERE id = ?", [(message, each.id) for each in notices]
    )


def sent(message: str, now_ns: int) -> RowChange:
    """Return the statement that says that a message has left."""
    statement = "UPDATE alert_notice SET sent_ns = ? WHERE message = ?"
    return RowChange(statement, [(now_ns, message)])


def position_change(stream: str, position: Position) -> RowChange:
    """Return the statement that says how far a stream is read."""
    row = (stream, *position)
    return RowChange("INSERT OR REPLACE INTO alert_position VALUES (?, ?, ?)", [row])


def forget_changes(settings: AlertsSection, now_ns: int) -> list[RowChange]:
    """Return the statements that forget rows that are too old, or too many."""
    oldest_ns = now_ns - int(settings.days_max * _DAY_NS)
    beyond = (
        "DELETE FROM alert WHERE id IN (SELECT id FROM alert WHERE ended_ns > 0"
        " ORDER BY ended_ns DESC LIMIT -1 OFFSET ?)"
    )
    return [
        RowChange("DELETE FROM alert WHERE ended_ns > 0 AND ended_ns < ?", [(oldest_ns,)]),
        RowChange(beyond, [(settings.rows_max,)]),
        RowChange(
            "DELETE FROM alert_notice WHERE sent_ns > 0 AND sent_ns < ?",
            [(now_ns - _NOTICES_DAYS * _DAY_NS,)],
        ),
        RowChange("DELETE FROM alert_silence WHERE until_ns < ?", [(oldest_ns,)]),
    ]


async def known_alerts(registry: Registry) -> list[AlertRecord]:
    """Return the alerts that are open, after the newest past ones of rules. Raises: RegistryError."""
    recent = await registry.fetch(
        f"SELECT {_ALERT} FROM alert WHERE ended_ns > 0 AND source = 'rule'"  # noqa: S608 - names of ours
        " ORDER BY ended_ns DESC LIMIT ?",
        (_RECENT_MAX,),
    )
    now_open = await registry.fetch(f"SELECT {_ALERT} FROM alert WHERE ended_ns = 0")  # noqa: S608
    return [_alert(row) for row in (*reversed(recent), *now_open)]


async def listed(
    registry: Registry, question: AlertsQuestion, devices: Sequence[str] | None
) -> list[AlertRecord]:
    """Return alerts, the newest first, past ones only where they are asked for.

    Args:
        registry: hub.db.
        question: which.
        devices: those that are asked for; None: all, and the hub's own.

    Raises:
        RegistryError: hub.db is not usable.
    """
    where, values = ["1 = 1"], list[Any]()
    if devices is not None:
        where.append("device IN (SELECT value FROM json_each(?))")
        values.append(json.dumps(list(devices)))
    if not question.past:
        where.append("ended_ns = 0")
    if question.id is not None:
        where.append("id = ?")
        values.append(question.id)
    if question.before_ns is not None:
        where.append("since_ns < ?")
        values.append(question.before_ns)
    query = f"SELECT {_ALERT} FROM alert WHERE {' AND '.join(where)}"  # noqa: S608
    rows = await registry.fetch(
        f"{query} ORDER BY since_ns DESC LIMIT ?", (*values, question.limit)
    )
    return [_alert(row) for row in rows]


async def told_of(registry: Registry) -> dict[str, dict[str, ToldSoFar]]:
    """Return how often channels were told of alerts, by id and channel. Raises: RegistryError."""
    found: dict[str, dict[str, ToldSoFar]] = {}
    for id_, channel, count, last_ns in await registry.fetch("SELECT * FROM alert_told"):
        found.setdefault(id_, {})[channel] = ToldSoFar(count, last_ns)
    return found


async def silences(registry: Registry) -> list[AlertSilence]:
    """Return all silences, by id. Raises: RegistryError."""
    return [
        AlertSilence(*row)
        for row in await registry.fetch("SELECT * FROM alert_silence ORDER BY id")
    ]


async def waiting(registry: Registry) -> list[UnsentNotice]:
    """Return the notices that were not sent, the oldest first. Raises: RegistryError."""
    rows = await registry.fetch(
        "SELECT id, channel, kind, alert, made_ns, message FROM alert_notice WHERE sent_ns = 0 ORDER BY number"
    )
    return [
        UnsentNotice(Notice(id_, channel, kind, _unpacked(alert), made_ns), message)
        for id_, channel, kind, alert, made_ns, message in rows
    ]


async def notices_of(registry: Registry, alert: str) -> list[dict[str, Any]]:
    """Return the notices of one alert (id), as JSON has them. Raises: RegistryError."""
    rows = await registry.fetch(
        "SELECT id, channel, kind, made_ns, sent_ns FROM alert_notice WHERE id >= ? AND id < ? ORDER BY number",
        (f"{alert}.", f"{alert}/"),
    )
    names = ("id", "channel", "kind", "made_ns", "sent_ns")
    return [dict(zip(names, row, strict=True)) | {"sent_ns": row[4] or None} for row in rows]


async def position_of(registry: Registry, stream: str) -> Position | None:
    """Return how far a stream is read; None: not at all. Raises: RegistryError."""
    query = "SELECT created, seq FROM alert_position WHERE stream = ?"
    rows = await registry.fetch(query, (stream,))
    return Position(*rows[0]) if rows else None


def _alert(row: Sequence[Any]) -> AlertRecord:
    id_, source, device, name, about, severity, text, hint, since, heard, seen, late, *rest = row
    key = AlertKey(source, device, name, about)
    return AlertRecord(id_, key, severity, text, hint, since, heard, seen, bool(late), *rest)


def _packed(alert: AlertRecord) -> str:
    return msgspec.json.encode(alert).decode()


def _unpacked(text: str) -> AlertRecord:
    return msgspec.json.decode(text, type=AlertRecord)

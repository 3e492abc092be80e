"""The recent past of this vehicle, out of its ledger: commands, events, and messages that wait for the hub.

Each answer is JSON's values. Queries go in slices, so that everything else goes on between two.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from nats.aio.client import Client
from nats.aio.msg import Msg

from backhaul_agent.apps.answering import answering
from backhaul_agent.apps.doors import ASKED
from backhaul_agent.apps.program_json import read_program_json
from backhaul_agent.ledger.command_rows import newest
from backhaul_agent.ledger.lanes import CommittedLane
from backhaul_agent.ledger.ledger import Ledger
from backhaul_agent.status.waiting import HOUR_NS, GivenUp, WaitingRows, WaitingSums
from backhaul_codec import CodecError
from backhaul_codec.kinds import REPORT, SYSTEM, SYSTEM_KINDS, Worth, system_kind
from backhaul_codec.state.json_values import read_sayable, value_to_json
from backhaul_codec.strict.json import JsonError, Reader
from backhaul_codec.subjects import SubjectError, parse_leaf
from backhaul_codec.wire.addressed import decode_addressed
from backhaul_codec.wire.dictionaries import plain

SLICE_ROWS = 4096
EVENT_ROWS = 64
SAID_BYTES_MAX = 4096
"""Of one result, or one part of an event; a longer one is cut."""
GIVEN_UP_MAX = 100
_HOUSEKEEPING = ", ".join(f"'e.{kind}'" for kind, said in SYSTEM_KINDS.items() if not said.history)
# With a plain id SQLite would go through all telemetry in its order; so it goes by the class.
_EVENTS = (
    "SELECT id, CAST(subject AS BLOB), coalesce(CAST(body AS BLOB), x'') FROM messages "  # noqa: S608 - constants
    f"WHERE value_class >= {int(Worth.EVENT)} AND +id < ? AND subject GLOB 'e.*' "
    f"AND subject NOT IN ({_HOUSEKEEPING}) ORDER BY +id DESC LIMIT ?"
)
_WAITING = (
    "SELECT t_lo / ?1, t_hi / ?1, boot > 0, count(*), "
    "sum(length(subject) + coalesce(length(body), 0)), min(t_lo), max(seq) FROM "
    "(SELECT seq, subject, body, boot, t_lo, t_hi FROM messages WHERE lane = ?2 AND seq > ?3 "
    "ORDER BY seq LIMIT ?4) GROUP BY 1, 2, 3"
)
_GIVEN_UP = (
    "SELECT lane, lo, hi, CAST(reason AS BLOB) FROM evicted ORDER BY lane DESC, lo DESC LIMIT ?"
)
_QUARANTINED = (
    "SELECT CAST(lane AS BLOB), epoch, seq, CAST(reason AS BLOB), time_ns FROM quarantined "
    "ORDER BY id DESC LIMIT ?"
)
_BESIDE = (
    "SELECT (SELECT t_hi FROM messages WHERE lane = ?1 AND seq < ?2 AND t_hi IS NOT NULL "
    "ORDER BY seq DESC LIMIT 1), (SELECT t_lo FROM messages WHERE lane = ?1 AND seq > ?3 "
    "AND t_lo IS NOT NULL ORDER BY seq LIMIT 1)"
)


class Recent:
    """Answers from one ledger. All methods raise LedgerStorageError where SQLite cannot read."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def commands(self, limit: int) -> dict[str, Any]:
        """Return the commands that came last, with how each ended, the newest first."""
        return {
            "commands": [
                {
                    "id": told.id,
                    "name": told.name,
                    "sent_ns": told.sent_ns,
                    "deadline_ns": told.deadline_ns,
                    "ended_ns": told.ended_ns or None,
                    "state": str(told.outcome.state),
                    "code": str(told.outcome.code),
                    "error": told.outcome.error,
                    "result": _said(told.outcome.result),
                    "runs": told.outcome.runs,
                }
                for told in await newest(self._ledger, limit, SAID_BYTES_MAX + 1)
            ]
        }

    async def events(self, limit: int) -> dict[str, Any]:
        """Return the newest events: programs', and those of the agent's own that history has."""
        found: list[dict[str, Any]] = []
        before = 1 << 62
        while len(found) < limit:
            rows = await self._ledger.query(_EVENTS, before, EVENT_ROWS)
            if not rows:
                break
            before = rows[-1][0]
            events = (self._event(*row) for row in rows)
            found += [event for event in events if event is not None]
            await asyncio.sleep(0)
        return {"events": found[:limit]}

    async def waiting(self) -> dict[str, Any]:
        """Return sums of the messages that the hub does not hold yet, by lane and hour, and those it will never get."""
        waiting = WaitingSums()
        for lane in self._ledger.every_lane():
            if not lane.whole:
                await self._sum_up(lane, waiting)
        waiting.given_up += reversed(await self._evicted())
        for lane_name, epoch, seq, reason, time_ns in reversed(
            await self._ledger.query(_QUARANTINED, GIVEN_UP_MAX)
        ):
            why = f"quarantined: {_text(reason)}"
            waiting.given_up.append(GivenUp(_text(lane_name), epoch, seq, seq, why, None, time_ns))
        return waiting.as_json()

    async def _sum_up(self, lane: CommittedLane, waiting: WaitingSums) -> None:
        after = lane.watermark
        while rows := await self._ledger.query(_WAITING, HOUR_NS, lane.id, after, SLICE_ROWS):
            waiting.add(
                lane.name,
                lane.epoch,
                (WaitingRows(lo, hi, bool(held), *sums) for lo, hi, held, *sums, _last_seq in rows),
            )
            after = max(row[-1] for row in rows)
            await asyncio.sleep(0)

    async def _evicted(self) -> list[GivenUp]:
        lanes = {lane.id: lane for lane in self._ledger.every_lane()}
        found = []
        for id_, lo, hi, reason in await self._ledger.query(_GIVEN_UP, GIVEN_UP_MAX):
            if (lane := lanes.get(id_)) is not None:
                [(after, before)] = await self._ledger.query(_BESIDE, id_, lo, hi)
                found.append(GivenUp(lane.name, lane.epoch, lo, hi, _text(reason), after, before))
        return found

    def _event(self, _row: int, subject: bytes, body: bytes) -> dict[str, Any] | None:
        """Return an event for people; None for the agent's own housekeeping, and for damaged ones."""
        try:
            place = parse_leaf(_text(subject))
            own = place.kind is SYSTEM and system_kind(place.type or "").history
            if place.kind is not REPORT and not own:
                return None
            [(_parent, point)] = decode_addressed(place, plain(body, self._ledger.lookup))[1]
            said, _dtype = value_to_json(point.value)
        except (CodecError, SubjectError, ValueError):
            return None
        told: dict[str, Any] = {"time": point.time, "kind": place.type or ""}
        told["by"] = "agent" if own else "program"
        if own or not isinstance(said, dict):
            return told | {"data": _cut(said)}
        found = {name: said[name] for name in ("previous", "reason", "data") if name in said}
        return told | {name: _cut(value) for name, value in found.items()}


def _said(result: bytes) -> Any:
    """Return a result as JSON's values; text where it is none."""
    if not result:
        return None
    if len(result) > SAID_BYTES_MAX:
        return f"{result[:SAID_BYTES_MAX].decode(errors='replace')}…"
    try:
        return read_sayable(result)
    except (JsonError, msgspec.DecodeError):
        return result.decode(errors="replace")


def _cut(said: Any) -> Any:
    """Return a value that an answer has room for: of a long one the beginning, as text."""
    text = msgspec.json.encode(said)
    return _said(text) if len(text) > SAID_BYTES_MAX else said


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode(errors="replace")


COMMANDS, EVENTS, WAITING = "agent.commands", "agent.events", "agent.waiting"
LIMIT_MAX = 200


class RecentRequest(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The payload; nothing is the same as ``{}``."""

    limit: Annotated[int, Meta(ge=1, le=LIMIT_MAX)] = 100


_read = Reader(RecentRequest).read


class RecentService:
    """Answers `agent.commands`, `agent.events`, `agent.waiting`, for the agent's own login alone (docs/apps.md).

    It lives as long as the daemon. One question of all at a time: each reads many rows.
    """

    def __init__(self, recent: Recent) -> None:
        self._recent = recent
        self._one_by_one = asyncio.Lock()

    async def run(self, client: Client) -> None:
        """Subscribe on a new connection. Raises: NatsError: it is gone."""
        for subject in (COMMANDS, EVENTS, WAITING):
            await client.subscribe(subject, cb=answering(self._answer), **ASKED)

    async def ask(self, subject: str, payload: bytes) -> dict[str, Any]:
        """Return the answer as JSON's values. Raises: RefusedError, LedgerStorageError."""
        limit = _limit(payload)
        async with self._one_by_one:
            if subject == COMMANDS:
                return await self._recent.commands(limit)
            if subject == EVENTS:
                return await self._recent.events(limit)
            return await self._recent.waiting()

    async def _answer(self, message: Msg) -> dict[str, Any]:
        return await self.ask(message.subject, message.data)


def _limit(payload: bytes) -> int:
    return (read_program_json(_read, payload) if payload.strip() else RecentRequest()).limit

"""Reading and writing heads, conflicts and the tree by request.

A write is in hub.db before it is answered, and in DOWN soon after, whatever happens in between. What changes is told on `hub.changed.<device>`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from backhaul_codec.rules import require_name
from backhaul_codec.state.json_values import parse_path, value_from_json
from backhaul_codec.state.merge import Head, HeadKey
from backhaul_codec.state.tree_text import describe, render
from backhaul_codec.subjects import decode_token
from backhaul_hub import questions
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.store import Registry
from backhaul_hub.db.write_turn import WriteTurn
from backhaul_hub.device import FLEET
from backhaul_hub.errors import HubError, WriteRefusedError
from backhaul_hub.sync.conflicts import ACCEPTED, REVERTED, Conflict, Side
from backhaul_hub.sync.conflicts import insertion as conflict_insertion
from backhaul_hub.sync.core import HubSync
from backhaul_hub.sync.heads import hub_origin
from backhaul_hub.sync.newest_readings import Readings, point_json
from backhaul_hub.sync.tree_writes import TreeWrite, TreeWrites
from backhaul_hub.sync.writes import Put
from backhaul_runtime.clock import Clock


@dataclass(eq=False)
class SyncService:
    """Answers requests about `HubSync`'s state.

    Args:
        devices: tells which devices there are.
    """

    _sync: HubSync
    _readings: Readings
    _registry: Registry
    _clock: Clock
    _devices: Callable[[], Collection[str]]

    def __post_init__(self) -> None:
        self._tree_writes = TreeWrites(self._sync.tree, self._sync.heads)

    async def get(self, question: questions.Get) -> dict[str, Any]:
        """Return heads of a device. Raises: HubError."""
        self._require(question.device)
        wanted = [_pattern(path) for path in question.paths]
        heads = sorted(self._all(question), key=lambda item: item[0])
        return {
            "device": question.device,
            "points": [
                point_json(question.device, key, head)
                for key, head in heads
                if (question.deleted or not head.deleted)
                and (not wanted or any(_matches(key, some) for some in wanted))
            ],
        }

    def _all(self, question: questions.Get) -> Iterator[tuple[HeadKey, Head]]:
        yield from self._sync.heads.of(question.device).heads
        if question.telemetry:
            for series, reading in self._readings.of(question.device).items():
                yield HeadKey("", *series), Head(reading.time, "", reading.value)

    async def set(self, question: questions.Set) -> dict[str, Any]:
        """Write points. Raises: HubError."""
        self._require(question.device)
        puts = [
            _put(HeadKey(question.parent, question.node, point.type, point.key), point)
            for point in question.points
        ]
        return await self._write(question.device, [puts], question.who)

    async def tree(self, _: questions.Nothing) -> dict[str, Any]:
        """Return the tree, as JSON and drawn."""
        # The tree reads as a Topology does, with addresses for nodes.
        tree: Any = self._sync.tree
        return {**describe(tree), "lines": render(tree)}

    async def node(self, question: questions.Node) -> dict[str, Any]:
        """Change the tree. Raises: HubError."""
        async with WriteTurn(self._registry):
            plan = self._plan(question)
            return await self._write_in_turn(plan.device, plan.puts, question.who)

    def _plan(self, question: questions.Node) -> TreeWrite:
        plans, address, under = self._tree_writes, question.address, question.under
        match question.do:
            case "create":
                node_type = None if question.type is None else value_from_json(question.type)
                first = [
                    (point.type, point.key, value_from_json(point.value, point.dtype))
                    for point in question.points
                ]
                return plans.create(address, node_type, under, first)
            case "move":
                return plans.move(address, _needed(under, "under"), question.source)
            case "mirror":
                return plans.mirror(address, _needed(under, "under"))
            case "delete":
                return plans.delete(address, under)
            case "undelete":
                return plans.undelete(address, under)

    async def conflicts(self, question: questions.ConflictsQuestion) -> dict[str, Any]:
        """Return conflicts, oldest first. Raises: HubError."""
        if question.device is not None:
            self._require(question.device)
        known = self._sync.conflicts
        return {
            "conflicts": [
                _conflict_json(each)
                for each in known.of(question.device)
                if question.settled or not each.resolved_ns
            ],
            "dropped": {"settled": known.dropped_resolved, "open": known.dropped_unresolved},
        }

    async def settle(self, question: questions.Settle) -> dict[str, Any]:
        """Revert or accept the winner of a conflict. Raises: HubError."""
        async with WriteTurn(self._registry):
            conflict = self._sync.conflicts.conflicts.get(question.id)
            if conflict is None:
                raise WriteRefusedError(f"there is no conflict {question.id}")
            if conflict.resolved_ns:
                raise WriteRefusedError(f"conflict {question.id} was {conflict.resolution} before")
            settled = self._sync.conflicts.settled(
                conflict,
                ACCEPTED if question.accept else REVERTED,
                hub_origin(_checked(question.who)),
                self._clock.now_ns(),
            )
            also = conflict_insertion([settled])
            answer: dict[str, Any] = {"points": []}
            if question.accept:
                await self._registry.write([also])
            else:
                loser = conflict.loser.head
                put = Put(conflict.key, loser.value, loser.deleted)
                answer = await self._write_in_turn(conflict.device, [[put]], question.who, [also])
            self._sync.conflicts.settle(settled)
            self._sync.note_news(conflict.device)
            return {**answer, "conflict": _conflict_json(settled)}

    async def _write(self, device: str, puts: Sequence[Sequence[Put]], who: str) -> dict[str, Any]:
        async with WriteTurn(self._registry):
            return await self._write_in_turn(device, puts, who)

    async def _write_in_turn(
        self,
        device: str,
        puts: Sequence[Sequence[Put]],
        who: str,
        also: Sequence[RowChange] = (),
    ) -> dict[str, Any]:
        planned = self._sync.plan(device, puts, hub_origin(_checked(who)))
        await self._registry.write([*planned.changes, *also])
        self._sync.apply(planned)
        keys = [HeadKey.of(*addressed) for write in planned.writes for addressed in write.points]
        heads = [(key, self._sync.heads.get(device, key)) for key in keys]
        return {"points": [point_json(device, key, head) for key, head in heads if head]}

    def _require(self, device: str) -> None:
        if device != FLEET and device not in self._devices():
            raise HubError(f"there is no device {device}", hint="see: backhaul-hub devices")


def _put(key: HeadKey, point: questions.PointToWrite) -> Put:
    if point.delete:
        return Put(key, None, deleted=True)
    return Put(key, value_from_json(point.value, point.dtype))


def _needed(value: str | None, what: str) -> str:
    if value is None:
        raise WriteRefusedError(f'"{what}" is missing')
    return value


def _checked(who: str) -> str:
    require_name(hub_origin(who), "origin")
    return who


def _pattern(path: str) -> tuple[str, ...]:
    """Read `node[.type[.key]]`."""
    if "." in path:
        names = parse_path(path)
        return names if path.count(".") == 2 else names[:2]
    return (decode_token(path),)


def _matches(key: HeadKey, pattern: tuple[str, ...]) -> bool:
    return key[1 : 1 + len(pattern)] == pattern


def _conflict_json(conflict: Conflict) -> dict[str, Any]:
    found = {
        "id": conflict.id,
        "device": conflict.device,
        "parent": conflict.key.parent,
        "node": conflict.key.node,
        "type": conflict.key.type,
        "key": conflict.key.key,
        "noticed_ns": conflict.noticed_ns,
        "winner": _side_json(conflict, conflict.winner),
        "loser": _side_json(conflict, conflict.loser),
    }
    if conflict.resolved_ns:
        found["resolved_ns"] = conflict.resolved_ns
        found["resolution"] = conflict.resolution
        found["resolved_by"] = conflict.resolved_by
    return found


def _side_json(conflict: Conflict, side: Side) -> dict[str, Any]:
    point = point_json(conflict.device, conflict.key, side.head)
    return {name: point[name] for name in ("time", "value", "dtype", "tombstone", "origin")} | {
        "clock": side.clock
    }

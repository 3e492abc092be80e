"""Completeness reports of devices' hours, by hub.db; `up` may run meanwhile, or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from backhaul_codec.assurance.completeness import (
    ERASED,
    HOUR_NS,
    HourReport,
    LaneId,
    Mark,
    lane_records,
    report_hours,
)
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.continuity.lane_state import LaneState
from backhaul_hub.db.devices import known_ids
from backhaul_hub.db.erased import erasure_of
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import RegistryError
from backhaul_hub.lane_records.device_words_store import marks_of, marks_of_each
from backhaul_hub.lane_records.imported_rows import imported_hours, imported_hours_of_each
from backhaul_hub.lane_records.lane_rows import read_lanes


@dataclass(frozen=True, slots=True)
class HourFacts:
    """The facts by which hours of one device are judged."""

    marks: Sequence[Mark] = ()
    lanes: Mapping[LaneKey, LaneState] = field(default_factory=dict)
    ended: Sequence[tuple[int, Mapping[str, int]]] = ()
    """Epochs that are over, and how far their lanes went."""
    imported: Mapping[int, bool] = field(default_factory=dict)

    @property
    def oldest_ns(self) -> int:
        """The time of the first mark that is still kept; 0: there is none."""
        return min((mark.time_ns for mark in self.marks), default=0)

    def judge(self, hours: Iterable[int]) -> list[HourReport]:
        """Return the reports for hours that begin at these times (ns, UTC).

        Hours before the first mark that is still kept have none.
        """
        oldest_ns = self.oldest_ns
        marked = {mark.epoch for mark in self.marks}
        lanes = {
            LaneId(key.lane, key.epoch): state
            for key, state in self.lanes.items()
            # Of a ledger that fell silent before the first mark there is, nothing is asked here.
            if key.epoch in marked or not state.seen or state.last_seen_ns >= oldest_ns
        }
        records = lane_records(
            {id_: state.held for id_, state in lanes.items()},
            {id_: state.receipts for id_, state in lanes.items()},
            [
                *((mark.epoch, mark.lanes) for mark in self.marks),
                *(
                    (id_.epoch, {id_.lane: max(state.seen.highest, state.said)})
                    for id_, state in lanes.items()
                ),
                *self.ended,
            ],
            {id_: state.chain.forked_from for id_, state in lanes.items()},
        )
        return report_hours(self.marks, records, hours, self.imported)


async def hour_reports_of(
    registry: Registry, device: str, hours: Iterable[int]
) -> list[HourReport]:
    """Return the completeness reports of a device for hours that begin at these times (ns, UTC).

    Hours before the first mark that is still kept have none.

    Raises:
        RegistryError: there is no such device, or the database refused.
    """
    if (erased := await erasure_of(registry, device)) is not None:
        began_ns = (erased.first_ns or erased.asked_ns) // HOUR_NS * HOUR_NS
        return [
            HourReport(hour, "erased", (), why=ERASED)
            for hour in hours
            if began_ns <= hour <= erased.asked_ns
        ]
    if not await known_ids(registry, [device]):
        raise RegistryError(
            f"there is no device {device}", hint="list them with: backhaul-hub devices"
        )
    ended = await registry.fetch("SELECT old, lanes FROM ended_epoch WHERE device = ?", (device,))
    facts = HourFacts(
        await marks_of(registry, device),
        await read_lanes(registry, device),
        [(old, _lanes(said)) for old, said in ended],
        await imported_hours(registry, device),
    )
    return facts.judge(hours)


async def facts_of_each(
    registry: Registry,
    lanes: Mapping[str, Mapping[LaneKey, LaneState]],
) -> dict[str, HourFacts]:
    """Return the facts of several devices, with one look at each table.

    Args:
        registry: hub.db.
        lanes: of each device, as they are now.

    Raises:
        RegistryError: the database refused.
    """
    devices = list(lanes)
    ended: dict[str, list[tuple[int, Mapping[str, int]]]] = {}
    query = "SELECT device, old, lanes FROM ended_epoch WHERE device IN (SELECT value FROM json_each(?))"
    for device, old, said in await registry.fetch(query, (_names(devices),)):
        ended.setdefault(device, []).append((old, _lanes(said)))
    marks = await marks_of_each(registry, _names(devices))
    imported = await imported_hours_of_each(registry, _names(devices))
    return {
        device: HourFacts(
            marks.get(device, ()), theirs, ended.get(device, ()), imported.get(device, {})
        )
        for device, theirs in lanes.items()
    }


def _names(devices: Sequence[str]) -> str:
    return msgspec.json.encode(devices).decode()


def _lanes(text: str) -> dict[str, int]:
    return msgspec.json.decode(text, type=dict[str, int])

"""What a hub.db says when it is read, and what continuity says once further messages have come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backhaul_codec import decode
from backhaul_hub.access.generations import generations
from backhaul_hub.access.key_rotations import rotations
from backhaul_hub.access.revocations import revocations
from backhaul_hub.alerts import rows as alert_rows
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.db.devices import read_devices
from backhaul_hub.enrol import rows as enrolment_rows
from backhaul_hub.lane_records.block_store import BlockStore
from backhaul_hub.lane_records.device_words_store import marks_of
from backhaul_hub.lane_records.imported_rows import epochs_of, imported_hours
from backhaul_hub.lane_records.lane_rows import read_lanes, read_position, store_read
from backhaul_hub.people import page_rows
from backhaul_hub.people.rows import known_people
from backhaul_hub.vehicles.core import restored

from .plain import plain

if TYPE_CHECKING:
    from backhaul_codec.protocol.vehicle_report import VehicleReport
    from backhaul_hub.continuity.lane_key import LaneKey
    from backhaul_hub.db.store import Registry


def before_budgets(report: VehicleReport) -> list[object]:
    """Return a report as the golden files have it: it said nothing of a budget then."""
    known: list[object] = plain(report)
    link_kb, budget_pct = known.pop(), known.pop()
    assert (link_kb, budget_pct) == ([], None)
    return known


async def says_since_14(registry: Registry) -> dict[str, Any]:
    """Return what is read back of the tables that came after schema 14."""
    open_alerts = [each.id for each in await alert_rows.known_alerts(registry)]
    return {
        "dictionaries": plain(await registry.fetch("SELECT * FROM dictionary ORDER BY digest")),
        "awaited": plain(await registry.fetch("SELECT * FROM awaited_dictionary")),
        "alerts": plain(await alert_rows.known_alerts(registry)),
        "told": plain(await alert_rows.told_of(registry)),
        "silences": plain(await alert_rows.silences(registry)),
        "waiting": plain(await alert_rows.waiting(registry)),
        "notices": {id_: plain(await alert_rows.notices_of(registry, id_)) for id_ in open_alerts},
        "alerts read": plain(await alert_rows.position_of(registry, "TWIN_EVENTS")),
        "links": [plain(await page_rows.link_of(registry, each * 64)) for each in "ab"],
        "sessions": plain(await page_rows.sessions(registry)),
    }


async def says(registry: Registry) -> dict[str, Any]:
    """Return all that the hub's parts read back from a hub.db at a start."""
    devices = await read_devices(registry)
    vehicles = await restored(registry)
    return {
        "devices": plain(devices),
        "lanes": await _lanes(registry),
        "position": plain(await read_position(registry, "UP_00")),
        "blocks": await _blocks(registry),
        "marks": {device: plain(await marks_of(registry, device)) for device in devices},
        "heads": await _points(registry, HEADS),
        "conflicts": await _points(registry, CONFLICTS),
        "people": plain(await known_people(registry)),
        "enrolments": plain(await enrolment_rows.of_devices_after(registry, "", 1000)),
        "rotations": plain(await rotations(registry)),
        "revocations": plain(await revocations(registry)),
        "generations": plain(await generations(registry)),
        "imported": plain(await epochs_of(registry, "VID-002")),
        "imported hours": plain(await imported_hours(registry, "VID-002")),
        "told": {
            device: [before_budgets(report), when_ns]
            for device, (report, when_ns) in vehicles.told.items()
        },
    }


async def go_on(registry: Registry) -> dict[str, Any]:
    """Have each lane's next message come, a repeat, and what fills the gaps; store it; return what is known then."""
    continuity = Continuity()
    lanes = await read_lanes(registry)
    continuity.restore(lanes)
    for key, state in sorted(lanes.items()):
        top, proven = state.held.highest, state.chain.proven(state.held.highest)
        continuity.arrived(
            key, top + 1, 100, 1, link=proven[1] if proven[0] == top else b"", own=b"next 1"
        )
        continuity.arrived(key, top + 2, 100, 2, link=b"next 1", own=b"next 2")
        continuity.arrived(key, top + 2, 100, 3, link=b"next 1", own=b"next 2")
        for low, high in state.gaps:
            for seq in range(low, high + 1):
                continuity.arrived(key, seq, 10, 4, link=b"", own=b"filled")
    told = {_name(key): plain(continuity.told_of(key)) for key in sorted(continuity.lanes)}
    position = await read_position(registry, "UP_00")
    await store_read(registry, "UP_00", position, continuity.take_changed())
    return {"told": told, "lanes": await _lanes(registry)}


def _name(key: LaneKey) -> str:
    return " ".join(map(str, key))


async def _lanes(registry: Registry) -> dict[str, Any]:
    found = {}
    for key, state in sorted((await read_lanes(registry)).items()):
        counts = [state.said, state.messages, state.repeats, state.body_bytes, state.last_seen_ns]
        found[_name(key)] = {
            "held": plain(state.held),
            "aged": plain(state.aged),
            "seen": plain(state.seen),
            "receipts": plain(state.receipts),
            "counts": counts,
            "gaps": plain(state.gaps),
            "proven": plain(state.proven),
            "forked": plain(state.chain.forked),
        }
    return found


async def _blocks(registry: Registry) -> list[Any]:
    store, found = BlockStore(registry, "UP_00"), []
    for block in await store.blocks():
        lanes = await store.lanes_in([block.number])
        found.append([plain(block), {_name(key): plain(lanes[key]) for key in sorted(lanes)}])
    return found


async def _points(registry: Registry, query: str) -> list[Any]:
    """Return rows whose blobs are points of the series that stands in their first columns."""
    found = []
    for device, parent, node, type_, key, *rest in await registry.fetch(query):
        names = {"node": node, "type": type_, "key": key}
        values = [decode(v, **names).points if isinstance(v, bytes) else v for v in rest]
        found.append(plain([device, parent, node, type_, key, *values]))
    return found


HEADS = "SELECT device, parent, node, type, key, point, heard_ns FROM head ORDER BY 1, 2, 3, 4, 5"
CONFLICTS = (
    "SELECT device, parent, node, type, key, winner, winner_clock, loser, loser_clock, noticed_ns,"
    " resolved_ns, resolution, resolved_by FROM conflict ORDER BY id"
)

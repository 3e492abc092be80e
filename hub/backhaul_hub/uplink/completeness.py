"""Completeness reports of one device's hours, by hub.db; `up` may run meanwhile, or not."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from backhaul_codec.assurance.completeness import HourReport, LaneId, lane_records, report_hours
from backhaul_hub.db.devices import read_devices
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import RegistryError
from backhaul_hub.uplink.device_words_store import marks_of
from backhaul_hub.uplink.imported_rows import imported_hours
from backhaul_hub.uplink.lane_rows import read_lanes


async def hour_reports_of(
    registry: Registry, device: str, hours: Iterable[int]
) -> list[HourReport]:
    """Return the completeness reports of a device for hours that begin at these times (ns, UTC).

    Hours before the first mark that is still kept have none.

    Raises:
        RegistryError: there is no such device, or the database refused.
    """
    if device not in await read_devices(registry):
        raise RegistryError(
            f"there is no device {device}", hint="list them with: backhaul-hub devices"
        )
    marks = await marks_of(registry, device)
    oldest_ns = min((mark.time_ns for mark in marks), default=0)
    marked = {mark.epoch for mark in marks}
    lanes = {
        LaneId(key.lane, key.epoch): state
        for key, state in (await read_lanes(registry, device)).items()
        # Of a ledger that fell silent before the first mark there is, nothing is asked here.
        if key.epoch in marked or not state.seen or state.last_seen_ns >= oldest_ns
    }
    ended = await registry.fetch("SELECT old, lanes FROM ended_epoch WHERE device = ?", (device,))
    records = lane_records(
        {id_: state.held for id_, state in lanes.items()},
        {id_: state.receipts for id_, state in lanes.items()},
        [
            *((mark.epoch, mark.lanes) for mark in marks),
            *(
                (id_.epoch, {id_.lane: max(state.seen.highest, state.said)})
                for id_, state in lanes.items()
            ),
            *((old, msgspec.json.decode(said, type=dict[str, int])) for old, said in ended),
        ],
        {id_: state.chain.forked_from for id_, state in lanes.items()},
    )
    return report_hours(marks, records, hours, await imported_hours(registry, device))

"""Vehicles' words, read back from hub.db."""

from __future__ import annotations

import msgspec

from backhaul_codec.assurance.completeness import Mark
from backhaul_codec.protocol.words import ClockWord
from backhaul_hub.db.store import Registry
from backhaul_hub.lane_records.device_words import WordBook


async def restore(registry: Registry, book: WordBook) -> None:
    """Tell a new WordBook the stored words.

    Raises:
        RegistryError: the database refused.
    """
    ended = await registry.fetch("SELECT device, old FROM ended_epoch")
    clocks = await registry.fetch(
        "SELECT device, time_ns, quality, offset_ns, error_ns, boot FROM vehicle_clock"
    )
    book.restore(
        [(row[0], row[1]) for row in ended], [(row[0], ClockWord(*row[1:])) for row in clocks]
    )


async def marks_of(registry: Registry, device: str) -> list[Mark]:
    """Return the marks of a device that are still kept.

    Raises:
        RegistryError: the database refused.
    """
    rows = await registry.fetch(
        "SELECT time_ns, epoch, seq, lanes, why, chain FROM mark WHERE device = ?", (device,)
    )
    return [_mark(*row) for row in rows]


async def marks_of_each(registry: Registry, devices: str) -> dict[str, list[Mark]]:
    """Return the same of several devices; `devices` is a JSON array of their ids.

    Raises:
        RegistryError: the database refused.
    """
    rows = await registry.fetch(
        "SELECT device, time_ns, epoch, seq, lanes, why, chain FROM mark"
        " WHERE device IN (SELECT value FROM json_each(?))",
        (devices,),
    )
    found: dict[str, list[Mark]] = {}
    for device, *row in rows:
        found.setdefault(device, []).append(_mark(*row))
    return found


def _mark(time_ns: int, epoch: int, seq: int, lanes: str, why: str, chain: str) -> Mark:
    return Mark(
        *(time_ns, epoch, seq, msgspec.json.decode(lanes, type=dict[str, int]), why),
        chain=msgspec.json.decode(chain, type=dict[str, str]),
    )

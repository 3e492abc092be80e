"""Vehicles' words, read back from hub.db."""

from __future__ import annotations

import msgspec

from backhaul_codec.assurance.completeness import Mark
from backhaul_codec.protocol.words import ClockWord
from backhaul_hub.db.store import Registry
from backhaul_hub.uplink.device_words import WordBook


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
    return [
        Mark(
            *(time_ns, epoch, seq, msgspec.json.decode(lanes, type=dict[str, int]), why),
            chain=msgspec.json.decode(chain, type=dict[str, str]),
        )
        for time_ns, epoch, seq, lanes, why, chain in rows
    ]

"""Reading back `HubSync`'s state from hub.db."""

from __future__ import annotations

import msgspec
import structlog

from backhaul_codec import CodecError
from backhaul_hub.db.store import Registry
from backhaul_hub.sync.conflicts import Conflict, conflict_of
from backhaul_hub.sync.core import HubSync, Peer, peer_of
from backhaul_hub.sync.heads import StoredHead, head_row
from backhaul_hub.sync.outbox import Lacking

log = structlog.get_logger(__name__)


async def restore(sync: HubSync, registry: Registry) -> None:
    """Give `sync` the stored rows; a damaged row is left out, and said.

    A head that is left out comes back from its device, whose digest differs then.

    Raises:
        RegistryError: hub.db cannot be read.
    """
    sync.restore(
        heads=await _heads(registry),
        conflicts=await _conflicts(registry),
        dropped=await _dropped(registry),
        lacking=[
            Lacking(*row)
            for row in await registry.fetch("SELECT device, subject, turn FROM outbox")
        ],
        peers=await _peers(registry),
    )


async def _heads(registry: Registry) -> list[StoredHead]:
    found: list[StoredHead] = []
    for row in await registry.fetch(
        "SELECT device, parent, node, type, key, point, heard_ns FROM head"
    ):
        try:
            found.append(head_row(row))
        except CodecError as error:
            log.warning("head_damaged", device=row[0], series=".".join(row[1:5]), error=str(error))
    return found


async def _conflicts(registry: Registry) -> list[Conflict]:
    found: list[Conflict] = []
    for row in await registry.fetch("SELECT * FROM conflict ORDER BY id"):
        try:
            found.append(conflict_of(row))
        except CodecError as error:
            log.warning("conflict_damaged", id=row[0], device=row[1], error=str(error))
    return found


async def _dropped(registry: Registry) -> tuple[int, int]:
    rows = await registry.fetch("SELECT resolved, unresolved FROM conflicts_dropped")
    return next(((row[0], row[1]) for row in rows), (0, 0))


async def _peers(registry: Registry) -> dict[str, Peer]:
    found: dict[str, Peer] = {}
    for device, words in await registry.fetch("SELECT device, words FROM said"):
        try:
            found[device] = peer_of(words)
        except msgspec.DecodeError as error:
            log.warning("words_damaged", device=device, error=str(error))
    return found

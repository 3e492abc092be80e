"""The plan of an erasure: places, and how much is in each."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from nats.aio.client import Client

from backhaul_hub.artifacts.object_store import Objects
from backhaul_hub.artifacts.uploads import object_name
from backhaul_hub.backup.last_backup import last_backup
from backhaul_hub.backup.retention import holding
from backhaul_hub.db.erased import erasure_of
from backhaul_hub.db.store import Registry
from backhaul_hub.erase import people, rows, streams
from backhaul_hub.erase.places import stream_places
from backhaul_hub.errors import RegistryError
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.streams.streams import QUARANTINE
from backhaul_hub.streams.twin_streams import BLOBS

TABLES = "backhaul-spark maintain --erase {device} --table-root ROOT"


async def plan_of(
    client: Client | None,
    registry: Registry,
    directory: Path,
    *,
    env: str,
    shards: int,
    device: str,
) -> dict[str, Any]:
    """Return the places of a device: messages by stream, rows by table of hub.db, files, backups.

    `client`: a connection in account HUB; None: no server runs, and `streams` is empty.

    Raises:
        RegistryError: nothing of it is here.
        HubError: the server does not answer.
    """
    erased = await erasure_of(registry, device)
    found = await rows.counted(registry, device)
    held: dict[str, int] = {}
    files: list[dict[str, Any]] = []
    if client is not None:
        api = JetStreamApi(client)
        for place in stream_places(env, shards, device):
            if count := await streams.held(api, place.stream, place.subject):
                held[place.stream] = count
        if count := len(await streams.quarantined(api, device)):
            held[QUARANTINE] = count
        if await api.stream_info(BLOBS) is not None:
            files = [
                {"name": each.name, "bytes": each.size}
                for each in await Objects(client).list()
                if each.name.startswith(object_name(device, ""))
            ]
    if not found and not held and not files and erased is None:
        raise RegistryError(
            f"the hub holds nothing of {device}", hint="list devices with: backhaul-hub devices"
        )
    backups = await asyncio.to_thread(_backups, directory, device)
    return {
        "device": device,
        "state": erased.state if erased else "",
        "streams": held,
        "rows": found,
        "files": files,
        "backups": [str(each) for each in backups],
        "tables": TABLES.format(device=device),
    }


async def plan_of_person(registry: Registry, name: str) -> dict[str, Any]:
    """Return how many rows of hub.db name a person. Raises: RegistryError: none does."""
    found = await people.counted(registry, name)
    if not found:
        raise RegistryError(f"hub.db names nobody {name}", hint="see: backhaul-hub user ls")
    return {"person": name, "rows": found}


def _backups(directory: Path, device: str) -> list[Path]:
    newest = last_backup(directory)
    held = holding(Path(newest.path), [device]) if newest is not None else {}
    return [each for each, some in held.items() if some]

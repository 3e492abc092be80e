"""Carries out erasures at the start of a control plane: no part of it has read anything by then.

Each step may be done again, so what was cut short goes on at the next start. `restore` and `restore --from-streams` bring
an older hub.db: the signed file beside the keys tells it what was erased since, and it is erased again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import structlog
from nats.aio.client import Client

from backhaul_hub.access.keys import HubKeys
from backhaul_hub.artifacts.object_store import Objects
from backhaul_hub.artifacts.uploads import object_name
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.erased import BEGUN, DONE, erasures, put_erasures
from backhaul_hub.db.store import Registry
from backhaul_hub.erase import people, rows
from backhaul_hub.erase import streams as in_streams
from backhaul_hub.erase.log import ErasureLog
from backhaul_hub.erase.places import stream_places
from backhaul_hub.lane_names import DOWN
from backhaul_hub.lane_records.log_into_rows import put_log_into_rows
from backhaul_hub.links.down_consumers import device_of_durable
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.nats.stream_reader import StoredReader
from backhaul_hub.shards import is_shard
from backhaul_hub.streams.streams import QUARANTINE, names
from backhaul_hub.streams.twin_streams import BLOBS, BLOBS_BUCKET, EVENTS
from backhaul_runtime.clock import Clock

log = structlog.get_logger(__name__)

FORMER = "hub.db.before-restore"
_REWRITING = "rewriting"


@dataclass(eq=False)
class Eraser:
    """Erases in one hub.

    Args:
        env: of the twins' subjects.
        shards: how many UP has.
        after: called with the name of each step that is done; tests end the process there.
    """

    _client: Client
    _api: JetStreamApi
    _registry: Registry
    _keys: HubKeys
    _directory: Path
    _clock: Clock
    env: str
    shards: int
    _after: Callable[[str], None] = lambda step: None

    def __post_init__(self) -> None:
        self._log = ErasureLog(self._directory, self._keys.operator_signing)
        self._rewriting = in_streams.Rewriting(
            self._client, self._api, self._directory / _REWRITING
        )

    async def run(self) -> list[str]:
        """Erase all that is to be, and is not; return the devices. Raises: HubError."""
        await self._rewriting.resume()
        await self._log.merge(self._registry)
        if await people.erase_again(self._registry, self._keys.operator_signing):
            await self._forget_pages()
        await people.forget_in_file(self._registry, self._directory, self._keys.operator_signing)
        due = [each for each in (await erasures(self._registry)).values() if each.state == BEGUN]
        if not due:
            return []
        await put_log_into_rows(self._registry)
        rewritten = {
            place.stream for each in due for place in await self._erase_from_streams(each.device)
        }
        for stream in sorted(rewritten):
            await self._rewriting.rewrite(stream)
        self._after("rewritten")
        for each in due:
            self._erase_files(each.device)
        (self._directory / FORMER).unlink(missing_ok=True)
        await self._forget_pages()
        now_ns = self._clock.now_ns()
        done = [replace(each, state=DONE, done_ns=now_ns) for each in due]
        await self._registry.write([put_erasures(done)])
        for each in due:
            log.info("erased", device=each.device)
        return [each.device for each in due]

    async def stray(self) -> list[str]:
        """Return erased devices of which UP or TWIN_EVENTS holds something again: it was on its way. Raises: HubError."""
        return [device for device in await erasures(self._registry) if await self._is_here(device)]

    async def _is_here(self, device: str) -> bool:
        places = stream_places(self.env, self.shards, device)
        looked = [each for each in places if is_shard(each.stream) or each.stream == EVENTS]
        return any([await in_streams.held(self._api, each.stream, each.subject) for each in looked])

    async def again(self, devices: list[str]) -> None:
        """Have the next start erase devices once more. Raises: RegistryError."""
        known = await erasures(self._registry)
        await self._registry.write(
            [put_erasures(replace(known[device], state=BEGUN) for device in devices)]
        )

    async def _erase_from_streams(self, device: str) -> list[Any]:
        """Erase a device from streams and hub.db; return the places whose streams are to be rewritten."""
        rewrite, settled = [], list[RowChange]()
        for name in await names(self._api, f"CONSUMER.NAMES.{DOWN}", "consumers"):
            whose = device_of_durable(name)
            if whose is not None and whose[0] == device:
                await self._api.delete_consumer(DOWN, name)
        for place in stream_places(self.env, self.shards, device):
            if not (info := await self._api.stream_info(place.stream)):
                continue
            if place.how == "overwrite":
                deleted = await in_streams.overwrite(
                    self._client, self._api, place.stream, place.subject
                )
                if is_shard(place.stream):
                    reader = StoredReader(self._client, place.stream)
                    first = info["state"]["first_seq"]
                    settling = rows.Settling(self._registry, self._api, reader, first)
                    settled += await settling.changes(deleted)
            else:
                await self._api.purge(place.stream, filter=place.subject)
            if place.how == "rewrite":
                rewrite.append(place)
            self._after(place.stream)
        await in_streams.delete(
            self._api, QUARANTINE, await in_streams.quarantined(self._api, device)
        )
        await self._erase_objects(device)
        self._after("streams")
        await self._registry.write([*settled, *await rows.deletions(self._registry, device)])
        self._after("rows")
        return rewrite

    async def _erase_objects(self, device: str) -> None:
        if await self._api.stream_info(BLOBS) is None:
            return
        objects = Objects(self._client)
        mine = [
            each for each in await objects.list() if each.name.startswith(object_name(device, ""))
        ]
        for each in mine:
            # The chunks first: without its entry nobody would find them again.
            await in_streams.overwrite(
                self._client, self._api, BLOBS, f"$O.{BLOBS_BUCKET}.C.{each.nuid}"
            )
            await objects.remove(each.name)
            await in_streams.overwrite(
                self._client, self._api, BLOBS, in_streams.entry_of(BLOBS_BUCKET, each.name)
            )

    def _erase_files(self, device: str) -> None:
        for place in ("uploads", "devices"):
            shutil.rmtree(self._directory / place / device, ignore_errors=True)

    async def _forget_pages(self) -> None:
        """Have the file of hub.db hold its rows, and nothing of before."""
        await self._registry.compact()

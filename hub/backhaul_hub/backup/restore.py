"""Putting a hub back from a backup: `backhaul-hub restore`.

UP and what is sourced from it come back with their sequences, so hub.db, which is older than they are,
reads on in them. DOWN does not come back: vehicles remember how far they have read it, so it begins
anew beyond every sequence it ever had, and what it said is said again from hub.db (ADR 16).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from backhaul_hub.access.keys import read_keys
from backhaul_hub.artifacts.object_store import Objects
from backhaul_hub.audit.trail import follow
from backhaul_hub.backup.backup import API_TIMEOUT_S
from backhaul_hub.backup.carry_revocations import AtServers, CarriedOver, carry_over
from backhaul_hub.backup.files import CONFIG, fold_log, place_file, set_created
from backhaul_hub.backup.manifest import (
    REGISTRY,
    ArtifactEntry,
    Manifest,
    StreamEntry,
    check_files,
    load_manifest,
)
from backhaul_hub.backup.names import require_plain_files
from backhaul_hub.backup.selection import NOT_KEPT
from backhaul_hub.config import HubConfig
from backhaul_hub.db.devices import read_devices
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import BackupError, HubError
from backhaul_hub.lane_names import DOWN
from backhaul_hub.nats.jetstream import JetStreamApi, Json
from backhaul_hub.nats.snapshots import put_back
from backhaul_hub.shards import is_shard
from backhaul_hub.streams.streams import AUDIT, declared_streams, reconcile
from backhaul_hub.streams.twin_streams import BLOBS
from backhaul_hub.unfinished import clear_unfinished, mark_unfinished, unfinished
from backhaul_hub.uplink.stream_digest import differs
from backhaul_runtime.clock import Clock

_READ_BYTES = 128 * 1024
_NOTHING = AtServers()
_ASIDE = f"{REGISTRY}.before-restore"


def whole_backup(source: Path) -> Manifest:
    """Return the manifest of a backup that is finished, each of its files checked.

    Raises:
        BackupError: it has no manifest, a file is missing or damaged, or a name or a link leads out
            of it: it is said.
    """
    require_plain_files(source)
    manifest = load_manifest(source)
    if manifest is None:
        raise BackupError(
            f"{source} is no finished backup: it has no manifest.json",
            hint="backhaul-hub backup finishes one that was cut short",
        )
    check_files(source, manifest)
    return manifest


@dataclass(eq=False)
class Restore:
    """One restore of one backup into one hub: its server runs, its control plane does not, and hub.db is the caller's alone.

    Args:
        source: the backup, `manifest` its content (`whole_backup`).
        progress: told of an item, how much of it is done, and of how much.
    """

    _client: Client
    _config: HubConfig
    _clock: Clock
    _source: Path
    _manifest: Manifest
    _directory: Path
    _progress: Callable[[str, int, int], None] = lambda item, done, of: None

    def __post_init__(self) -> None:
        self._api = JetStreamApi(self._client, timeout_s=API_TIMEOUT_S)
        self._created: dict[str, str] = {}
        self._stays: set[str] = set()

    async def run(self, *, replace: bool = False, there: AtServers = _NOTHING) -> CarriedOver:
        """Put everything back and check it; run again after it was cut short, it goes on.

        ``there``: who is shut out now, as the servers say; stays so, whatever the backup says.

        Raises:
            HubError: the control plane runs, the hub holds data and may not be replaced, the server
                refused, or what came back is not what was taken.
        """
        await require_stopped(self._client)
        self._require_same_keys()
        if REGISTRY not in self._manifest.files:
            raise BackupError(f"{self._source} has no {REGISTRY}")
        if self._manifest.env != self._config.twin.env:
            raise BackupError(
                f"the backup is of env {self._manifest.env!r}, this hub of {self._config.twin.env!r}"
            )
        self._stays = await self._log_stays()
        begun = unfinished(self._directory)
        goes_on = begun == (str(self._source.absolute()), True)
        if not goes_on:
            if not replace:
                await self._require_empty()
            # From here on the hub is half; only a finished restore makes it whole.
            mark_unfinished(self._directory, self._source, cleared=False)
            await self._clear()
            mark_unfinished(self._directory, self._source, cleared=True)
        # UP before what is sourced from it.
        for each in sorted(self._manifest.streams, key=lambda each: not is_shard(each.name)):
            await self._put_stream(each, goes_on=goes_on)
        for emptied in self._manifest.emptied:
            # What sourced the UP that was left out goes on where it was.
            await _make(self._api, self._config, emptied.name, emptied.last_seq + 1)
        await self._put_artifacts()
        await begin_down(self._api, self._config, self._clock)
        await asyncio.to_thread(self._put_registry)
        async with await Registry.open(self._directory / REGISTRY) as registry:
            aside, now_ns = self._directory / _ASIDE, self._clock.now_ns()
            carried = await carry_over(registry, there.revoked, aside, now_ns, there.generations)
        clear_unfinished(self._directory)
        return carried

    def _names(self) -> list[str]:
        kept = [each.name for each in self._manifest.streams]
        return [*kept, *(each.name for each in self._manifest.emptied), *NOT_KEPT]

    def _require_same_keys(self) -> None:
        """Refuse the backup of another hub: its vehicles would not be let in here."""
        if read_keys(self._source / CONFIG) != read_keys(self._directory):
            raise BackupError(
                f"{self._directory} has other keys than the hub of the backup: no vehicle could log in",
                hint="restore into an empty directory, which then gets the keys of the backup",
            )

    async def _log_stays(self) -> set[str]:
        """Return AUDIT if the server's is whole and no shorter than the backup's: it has the acts since."""
        entry = self._manifest.stream(AUDIT)
        info = await self._api.stream_info(AUDIT)
        if info is None or (entry and info["state"]["last_seq"] < entry.state["last_seq"]):
            return set()
        return set() if (await follow(self._client)).breaches else {AUDIT}

    async def _require_empty(self) -> None:
        holds = []
        for name in sorted({*self._names()} - {AUDIT}):
            info = await self._api.stream_info(name)
            if info is not None and info["state"]["messages"]:
                holds.append(f"stream {name} holds {info['state']['messages']:,} messages")
        path = self._directory / REGISTRY
        if path.exists():
            async with await Registry.open(path) as registry:
                if devices := await read_devices(registry):
                    holds.append(f"{REGISTRY} knows {len(devices)} devices")
        if holds:
            raise BackupError(
                "\n  ".join(["this hub is not empty:", *holds]),
                hint="--replace deletes these streams and moves hub.db aside",
            )

    async def _clear(self) -> None:
        for name in self._names():
            if name not in self._stays:
                await self._api.delete_stream(name)
        path = self._directory / REGISTRY
        if path.exists():
            # Through SQLite: what stands in its log comes along.
            await asyncio.to_thread(fold_log, path)
            path.replace(self._directory / _ASIDE)

    async def _put_stream(self, entry: StreamEntry, *, goes_on: bool) -> None:
        if entry.name in self._stays:
            return
        info = await self._api.stream_info(entry.name) if goes_on else None
        if info is not None and await self._differs(entry, info):
            await self._api.delete_stream(entry.name)
            info = None
        if info is None:
            snapshot = {"config": self._configuration(entry), "state": entry.state}
            await put_back(self._client, self._api, snapshot, self._chunks(entry))
            info = await self._api.info(entry.name)
            if differs := await self._differs(entry, info):
                raise BackupError(f"{entry.name} is not as it was: {differs}")
        if entry.blocks:
            self._created[entry.created] = info["created"]

    def _configuration(self, entry: StreamEntry) -> Json:
        config = entry.config | {"num_replicas": self._config.streams.replicas}
        if is_shard(entry.name):
            # Sources come with the devices that connect; these might never.
            config["sources"] = []
        return config

    async def _chunks(self, entry: StreamEntry) -> AsyncIterator[bytes]:
        size, done = self._manifest.files[entry.file].bytes, 0
        with (self._source / entry.file).open("rb") as file:
            while chunk := file.read(_READ_BYTES):
                yield chunk
                done += len(chunk)
                self._progress(entry.name, done, size)

    async def _differs(self, entry: StreamEntry, info: Json) -> str:
        return await differs(self._client, entry.state, entry.blocks, info)

    async def _put_artifacts(self) -> None:
        if not self._manifest.artifacts:
            return
        await _make(self._api, self._config, BLOBS, 1)
        objects = Objects(self._client)
        for each in self._manifest.artifacts:
            known = await objects.info(each.name)
            if known is None or known.digest.hex() != each.sha256:
                await self._put_artifact(objects, each)

    async def _put_artifact(self, objects: Objects, entry: ArtifactEntry) -> None:
        with (self._source / entry.file).open("rb", buffering=0) as file:
            put = await objects.put(entry.name, file, description=entry.description)
        if put.digest.hex() != entry.sha256:
            raise BackupError(f"artifact {entry.name} is not as it was")
        self._progress(entry.name, entry.bytes, entry.bytes)

    def _put_registry(self) -> None:
        target = self._directory / REGISTRY
        for suffix in ("-wal", "-shm"):
            target.with_name(REGISTRY + suffix).unlink(missing_ok=True)
        new = target.with_name(f"{REGISTRY}.new")
        try:
            place_file(self._source / REGISTRY, new, self._manifest.files[REGISTRY])
            set_created(new, self._created)
            new.replace(target)
        except OSError as error:
            raise BackupError(f"{target}: {error}") from error


async def begin_down(api: JetStreamApi, config: HubConfig, clock: Clock) -> None:
    """Make DOWN, beginning beyond every sequence that it ever had, here or elsewhere (ADR 16).

    Raises:
        HubError: the server refused.
    """
    # Microseconds since 1970: also beyond an earlier restore's, as long as DOWN takes in less
    # than a million messages a second.
    await _make(api, config, DOWN, clock.now_ns() // 1000)


async def _make(api: JetStreamApi, config: HubConfig, name: str, first_seq: int) -> None:
    for declared in declared_streams(config):
        if declared["name"] == name:
            await reconcile(api, declared | {"first_seq": first_seq})


async def require_stopped(client: Client) -> None:
    """See that no control plane runs at this server.

    Raises:
        BackupError: one does.
    """
    try:
        await client.request("hub.devices", b"", timeout=5)
    except NoRespondersError:
        return
    except NatsError as error:
        raise HubError(f"cannot tell whether a control plane runs: {error!r}") from error
    raise BackupError(
        "the control plane runs", hint="stop it first: systemctl stop backhaul-hub.service"
    )

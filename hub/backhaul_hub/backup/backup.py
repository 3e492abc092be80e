"""Taking a backup of a running hub: `backhaul-hub backup`.

The order is what makes it whole (ADR 16). hub.db comes first: its read position is then never beyond
the end of UP in the backup, and the hub reads on from there. UP comes last: what sources it, TWIN_EVENTS,
then never claims to have taken what the UP of the backup lacks.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.errors import APIError, NoKeysError

from backhaul_hub.artifacts.object_store import Artifact, Objects
from backhaul_hub.backup.files import CONFIG, configuration_files, copy_database, count_devices
from backhaul_hub.backup.last_backup import LastBackup, note_backup
from backhaul_hub.backup.manifest import (
    MANIFEST,
    PARTIAL,
    REGISTRY,
    ArtifactEntry,
    EmptyEntry,
    FileEntry,
    Manifest,
    StreamEntry,
    check_file,
    check_files,
    load_manifest,
    new_file,
    store_manifest,
)
from backhaul_hub.backup.names import require_plain_files
from backhaul_hub.backup.selection import Choice, chosen
from backhaul_hub.config import HubConfig
from backhaul_hub.errors import ArtifactError, BackupError
from backhaul_hub.nats.jetstream import JetStreamApi, Json
from backhaul_hub.nats.snapshots import Snapshot
from backhaul_hub.private_files import alone_in, private_directory
from backhaul_hub.shards import is_shard
from backhaul_hub.streams.streams import stream_names
from backhaul_hub.uplink.stream_digest import Block, digest_blocks, ranges, still_there
from backhaul_runtime.clock import Clock

_BUCKET = "KV_"
_TRIES = 3
# A large stream is looked through before the server answers.
API_TIMEOUT_S = 120.0


@dataclass(eq=False)
class Backup:
    """One backup into one directory.

    Args:
        source: the hub directory.
        target: where the backup goes; what an earlier run has finished there is kept.
        progress: told of an item, how much of it is done, and of how much.
    """

    _client: Client
    _config: HubConfig
    _clock: Clock
    _source: Path
    _target: Path
    _choice: Choice
    _progress: Callable[[str, int, int], None] = lambda item, done, of: None

    def __post_init__(self) -> None:
        self._api = JetStreamApi(self._client, timeout_s=API_TIMEOUT_S)
        self._manifest = Manifest("", "", "")

    async def run(self) -> Manifest:
        """Take all of it, check it, and write the manifest.

        Raises:
            HubError: the server does not answer, the disk is full, or a file is damaged. What is
                finished is kept for the next run.
        """
        self._open()
        there = await stream_names(self._api)
        names = chosen(there, self._choice)
        await self._take_registry()
        self._take_configuration()
        for name in names:
            if not is_shard(name):
                await self._take_stream(name)
                if name.startswith(_BUCKET):
                    await self._export_bucket(name)
        if not self._choice.streams:
            await self._take_artifacts()
        for name in sorted(filter(is_shard, there)):
            await (self._take_stream if name in names else self._note_up)(name)
        await asyncio.to_thread(check_files, self._target, self._manifest)
        self._manifest.ended = self._now()
        store_manifest(self._target, self._manifest, MANIFEST)
        (self._target / PARTIAL).unlink(missing_ok=True)
        taken = LastBackup(str(self._target.absolute()), self._manifest.began, self._devices())
        note_backup(self._source, taken)
        return self._manifest

    def _devices(self) -> int:
        """Return how many devices the copy of hub.db knows."""
        return count_devices(self._target / REGISTRY)

    def _now(self) -> str:
        return datetime.fromtimestamp(self._clock.now_ns() // 10**9, UTC).isoformat()

    def _open(self) -> None:
        """Begin, or go on with the files of an earlier run."""
        try:
            private_directory(self._target)
        except OSError as error:
            raise BackupError(f"{self._target}: {error.strerror}") from error
        if (self._target / MANIFEST).exists():
            raise BackupError(
                f"{self._target} holds a finished backup", hint="choose another directory"
            )
        require_plain_files(self._target)
        before = load_manifest(self._target, PARTIAL)
        if before is None:
            if any(self._target.iterdir()):
                raise BackupError(
                    f"{self._target} holds other files", hint="choose another directory"
                )
            server = str(self._client.connected_server_version)
            before = Manifest(server, self._config.twin.env, self._now())
            store_manifest(self._target, before)
        self._manifest = before
        for name, entry in list(before.files.items()):
            if check_file(self._target, name, entry):
                self._forget(name)

    def _forget(self, file: str) -> None:
        """Take a damaged file for one that was never written."""
        known = self._manifest
        del known.files[file]
        known.streams = [each for each in known.streams if each.file != file]
        known.artifacts = [each for each in known.artifacts if each.file != file]

    def _finished(self, file: str, entry: FileEntry) -> None:
        self._manifest.files[file] = entry
        store_manifest(self._target, self._manifest)

    async def _take_registry(self) -> None:
        if REGISTRY in self._manifest.files:
            return
        if self._manifest.streams:
            # Streams that are older than hub.db would lack what it says that they hold.
            self._manifest.streams, self._manifest.artifacts = [], []
        with alone_in(self._source):
            entry = await asyncio.to_thread(
                copy_database, self._source / REGISTRY, self._target / REGISTRY
            )
        self._finished(REGISTRY, entry)

    def _take_configuration(self) -> None:
        """Copy hub.toml, hub.conf, keys, logins and the vehicles' files: they hold secrets."""
        with alone_in(self._source):
            for path in configuration_files(self._source):
                name = f"{CONFIG}{path.relative_to(self._source)}"
                try:
                    body = path.read_bytes()
                except FileNotFoundError:
                    continue  # of a device that was revoked meanwhile
                with new_file(self._target / name) as file:
                    file.write(body)
                self._manifest.files[name] = file.entry()
        store_manifest(self._target, self._manifest)

    async def _take_stream(self, name: str) -> None:
        if self._manifest.stream(name) is not None:
            return
        entry, written = await self._snapshot(name)
        for _ in range(_TRIES - 1):
            if entry.blocks or not entry.state["messages"]:
                break
            entry, written = await self._snapshot(name)
        self._manifest.streams.append(entry)
        self._finished(entry.file, written)

    async def _snapshot(self, name: str) -> tuple[StreamEntry, FileEntry]:
        before = await self._api.info(name)
        snapshot = await Snapshot.begin(self._client, self._api, name)
        file_name = f"streams/{name}.tar.s2"
        async with aclosing(snapshot.chunks()) as chunks:
            with new_file(self._target / file_name) as file:
                async for chunk in chunks:
                    file.write(chunk)
                    self._progress(name, file.bytes, snapshot.state["bytes"])
        blocks = await self._digests(name, snapshot, before)
        entry = StreamEntry(
            name, file_name, before["created"], snapshot.config, snapshot.state, blocks
        )
        return entry, file.entry()

    async def _digests(self, name: str, snapshot: Snapshot, before: Json) -> list[Block]:
        """Return the digests of the snapshot's contents; none where the stream changed meanwhile."""
        if not snapshot.config.get("allow_direct"):
            return []
        state, done = snapshot.state, 0

        def note(count: int) -> None:
            nonlocal done
            done += count
            self._progress(f"{name}: digests", done, state["messages"])

        stretches = ranges(max(1, state["first_seq"]), state["last_seq"])
        blocks = await digest_blocks(self._client, name, stretches, note)
        after = await self._api.info(name)
        return still_there(blocks, before, after)

    async def _note_up(self, name: str) -> None:
        if not any(each.name == name for each in self._manifest.emptied):
            info = await self._api.info(name)
            self._manifest.emptied.append(EmptyEntry(name, info["state"]["last_seq"]))
            store_manifest(self._target, self._manifest)

    async def _export_bucket(self, stream: str) -> None:
        """Write the newest value of each key as JSON: for people, the snapshot is for `restore`."""
        bucket = stream.removeprefix(_BUCKET)
        found: dict[str, Any] = {}
        try:
            store = await self._client.jetstream(timeout=API_TIMEOUT_S).key_value(bucket)
            for key in sorted(await store.keys()):
                entry = await store.get(key)
                found[key] = {"revision": entry.revision} | _value(entry.value or b"")
        except NoKeysError:
            pass
        except (NatsError, APIError) as error:
            raise BackupError(f"bucket {bucket} cannot be read: {error!r}") from error
        name = f"kv/{bucket}.json"
        with new_file(self._target / name) as file:
            file.write(json.dumps(found, indent=1, ensure_ascii=False).encode())
        self._finished(name, file.entry())

    async def _take_artifacts(self) -> None:
        objects = Objects(self._client)
        taken = {(each.name, each.sha256) for each in self._manifest.artifacts}
        for artifact in await objects.list():
            if (artifact.name, artifact.digest.hex()) in taken:
                continue
            try:
                await self._take_artifact(objects, artifact)
            except ArtifactError:
                now = await objects.info(artifact.name)
                if now is None:
                    continue  # somebody has removed it meanwhile
                if now.nuid == artifact.nuid:
                    raise
                await self._take_artifact(objects, now)

    async def _take_artifact(self, objects: Objects, artifact: Artifact) -> None:
        name = f"artifacts/{artifact.digest.hex()}"
        entry = self._manifest.files.get(name)
        if entry is None:
            async with aclosing(objects.content(artifact)) as content:  # type: ignore[type-var]
                with new_file(self._target / name) as file:
                    async for data in content:
                        file.write(data)
                        self._progress(artifact.name, file.bytes, artifact.size)
            entry = file.entry()
        said = ArtifactEntry(
            artifact.name, name, artifact.size, artifact.digest.hex(), artifact.description
        )
        self._manifest.artifacts.append(said)
        self._finished(name, entry)


def _value(body: bytes) -> dict[str, Any]:
    try:
        return {"value": json.loads(body)}
    except ValueError:
        return {"base64": base64.b64encode(body).decode()}

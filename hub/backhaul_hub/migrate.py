"""Moving a hub's streams to another server: `backhaul-hub migrate`.

Each stream goes over as a snapshot while it comes, with its sequences, and is compared block by block.
The old hub stands still meanwhile: its control plane is stopped and UP sources nobody; vehicles keep
what they have to send. Mirrors are no way between servers that are not in one cluster (ADR 16).
"""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

from .backup import API_TIMEOUT_S
from .backup_choice import NOT_KEPT
from .backup_files import copy_database, place_file, set_created
from .errors import BackupError
from .jetstream import JetStreamApi
from .manifest import REGISTRY
from .moved import Move, forget_move, move_of, note_move
from .restore import begin_down, require_stopped
from .snapshots import Snapshot, copy
from .stream_digest import differs, digest_blocks, ranges
from .streams import is_shard, stream_names
from .twin_streams import BLOBS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from nats.aio.client import Client

    from .clock import Clock
    from .config import HubConfig
    from .jetstream import Json

HANDOVER = "migrated"
_STAY = NOT_KEPT.keys() - {BLOBS}


class Migration:
    """One migration of one hub to one server.

    Args:
        here: a connection in account HUB of the hub as it is; `there`: of the other one.
        directory: the hub directory.
        to: the other server, as it may be shown.
        progress: told of a stream, how many bytes of it are done, and of how many.
    """

    def __init__(
        self,
        here: Client,
        there: Client,
        config: HubConfig,
        clock: Clock,
        directory: Path,
        to: str,
        progress: Callable[[str, int, int], None] = lambda item, done, of: None,
    ) -> None:
        self._here, self._there = here, there
        self._old = JetStreamApi(here, timeout_s=API_TIMEOUT_S)
        self._new = JetStreamApi(there, timeout_s=API_TIMEOUT_S)
        self._config = config
        self._clock = clock
        self._directory = directory
        self._to = to
        self._progress = progress
        self._created: dict[str, str] = {}

    async def run(self) -> dict[str, Json]:
        """Move everything, compare it, and make what the new hub directory needs.

        Run again after it was cut short, it keeps what is whole at the other server. Returns the
        state of each stream there.

        Raises:
            HubError: a control plane runs, the other server holds data or refuses, or what came
                there is not what is here.
        """
        move = self._begun() or Move(self._to)
        await require_stopped(self._here)
        await require_stopped(self._there)
        names = sorted(
            await stream_names(self._old) - _STAY, key=lambda name: (not is_shard(name), name)
        )
        await self._require_room(move, names)
        note_move(self._directory, move)
        for name in filter(is_shard, names):
            await self._quiet(name)
        states = {}
        for name in names:
            if name not in move.streams:
                move.streams.append(name)
                note_move(self._directory, move)
            states[name] = await self._move(name)
        await begin_down(self._new, self._config, self._clock)
        await asyncio.to_thread(self._hand_over)
        return states

    async def abort(self) -> list[str]:
        """Delete what was made at the other server, and let the hub run here again.

        Returns the names of the streams that went.

        Raises:
            HubError: there was no migration to it, its control plane runs, or it refused.
        """
        move = self._begun()
        if move is None:
            raise BackupError("no migration was begun from here")
        await require_stopped(self._there)
        gone = []
        for name in [*move.streams, *_STAY]:
            if await self._new.stream_info(name) is not None:
                await self._new.request(f"STREAM.DELETE.{name}")
                gone.append(name)
        shutil.rmtree(self._directory / HANDOVER, ignore_errors=True)
        forget_move(self._directory)
        return gone

    def _begun(self) -> Move | None:
        move = move_of(self._directory)
        if move is not None and move.to != self._to:
            raise BackupError(
                f"a migration to {move.to} was begun", hint="go on with it, or abort it, there"
            )
        return move

    async def _require_room(self, move: Move, names: list[str]) -> None:
        """See that nothing of another hub is at the other server; empty streams make room."""
        if sorted(await stream_names(self._new)) == sorted(await stream_names(self._old)):
            for name in names[:1]:
                old = await self._old.request(f"STREAM.INFO.{name}")
                new = await self._new.request(f"STREAM.INFO.{name}")
                if old["created"] == new["created"]:
                    raise BackupError(f"{self._to} is the server that this hub has already")
        for name in [*names, *sorted(_STAY)]:
            info = await self._new.stream_info(name)
            if info is None or name in move.streams:
                continue
            if info["state"]["messages"]:
                raise BackupError(
                    f"{self._to} holds {info['state']['messages']:,} messages in {name}",
                    hint="move to a hub that is new: backhaul-hub init",
                )
            await self._new.request(f"STREAM.DELETE.{name}")

    async def _quiet(self, name: str) -> None:
        config = (await self._old.request(f"STREAM.INFO.{name}"))["config"]
        if config.get("sources"):
            await self._old.request(f"STREAM.UPDATE.{name}", config | {"sources": []})

    async def _move(self, name: str) -> Json:
        old = await self._old.request(f"STREAM.INFO.{name}")
        new = await self._new.stream_info(name)
        if new is not None and await self._differs(old, new):
            await self._new.request(f"STREAM.DELETE.{name}")
            new = None
        if new is None:
            snapshot = await Snapshot.begin(self._here, self._old, name)
            await copy(snapshot, self._there, self._new, lambda config: self._told(name, config))
            new = await self._new.request(f"STREAM.INFO.{name}")
            if wrong := await self._differs(old, new):
                raise BackupError(f"{name} is not at {self._to} as it is here: {wrong}")
        size = old["state"]["bytes"]
        self._progress(name, size, size)
        self._created[old["created"]] = new["created"]
        state: Json = new["state"]
        return state

    def _told(self, name: str, config: Json) -> Json:
        self._progress(name, 0, 1)
        return config

    async def _differs(self, old: Json, new: Json) -> str:
        name, state = old["config"]["name"], old["state"]
        first = max(1, state["first_seq"], new["state"]["first_seq"])
        direct = old["config"].get("allow_direct")
        stretches = ranges(first, state["last_seq"]) if direct else []
        blocks = await digest_blocks(self._here, name, stretches)
        return await differs(self._there, state, blocks, new)

    def _hand_over(self) -> None:
        """Write what the directory of the new hub needs: hub.db, and the vehicles' files."""
        target = self._directory / HANDOVER
        try:
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(mode=0o700)
            copy_database(self._directory / REGISTRY, target / REGISTRY)
            set_created(target / REGISTRY, self._created)
            for path in self._directory.glob("devices/*/*"):
                place = target / path.relative_to(self._directory)
                place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                place_file(path, place)
        except OSError as error:
            raise BackupError(f"{target}: {error.strerror}") from error

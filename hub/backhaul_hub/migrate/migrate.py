"""Moving a hub's streams to another server: `backhaul-hub migrate`.

They are mirrored there while the hub works, and compared block by block as they come. Then the hub
stands still for as long as the last messages take: its control plane is stopped, its streams are
closed, what is left is compared, and each mirror becomes the stream that it was of (ADR 21).
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from nats.aio.client import Client

from backhaul_hub.access.keys import read_keys
from backhaul_hub.backup.backup import API_TIMEOUT_S
from backhaul_hub.backup.files import copy_database, place_file, set_created
from backhaul_hub.backup.manifest import REGISTRY
from backhaul_hub.backup.restore import begin_down, require_stopped
from backhaul_hub.config import HubConfig
from backhaul_hub.db.lock import ENDS_S_MAX, alone_with
from backhaul_hub.errors import BackupError
from backhaul_hub.lane_names import DOWN
from backhaul_hub.migrate.compare import SideBySide
from backhaul_hub.migrate.mirrors import (
    all_mirrored,
    begin_mirror,
    can_be_mirrored,
    end_mirror,
    promoted,
    until_it_answers,
)
from backhaul_hub.migrate.stopping import answers, stop
from backhaul_hub.nats.jetstream import JetStreamApi, Json
from backhaul_hub.nats.snapshots import Snapshot, copy
from backhaul_hub.private_files import private_directory
from backhaul_hub.shards import PUSH, is_passing, is_shard
from backhaul_hub.start_guard import Move, forget_move, move_of, note_move
from backhaul_hub.streams.streams import stream_names
from backhaul_hub.streams.twin_streams import STATE
from backhaul_hub.uplink.stream_digest import BLOCK_SEQS
from backhaul_runtime.clock import Clock

HANDOVER = "migrated"
# Made anew from hub.db and UP. State of an hour, every message of it synced there, is not worth it.
_STAY = {DOWN, STATE}
# Both are a moment's work, and all that the hub waits for at the switch.
_BEHIND_MESSAGES_MAX = 200
_UNCOMPARED_MAX = 2 * BLOCK_SEQS
_LOOK_S = 0.25
_LAST_S_MAX = 180.0
_RELAYS_S_MAX = 5.0


def _stays(name: str) -> bool:
    """Tell whether a stream does not move: all of it is made anew there, or on its way into UP."""
    return name in _STAY or is_passing(name)


def require_alone(info: Json) -> None:
    """Refuse to mirror a hub of several servers; `info` is that of any of its streams. Pure.

    The bridge is a leaf of one server, and hears no stream that another server leads.

    Raises:
        BackupError: another server has a copy of the stream.
    """
    if (info.get("cluster") or {}).get("replicas"):
        raise BackupError(
            "a hub of several servers cannot be mirrored to another",
            hint="backhaul-hub backup here, then backhaul-hub restore there",
        )


class Migration:
    """One migration of one hub to one server.

    Args:
        here: a connection in account HUB of the hub as it is; `there`: of the other one.
        bridge: connects the two servers while it is entered (migrate/bridge.py).
        to: the other server, as it may be shown.
        progress: told of a stream, how many messages of it are there, and of how many.
    """

    def __init__(
        self,
        here: Client,
        there: Client,
        bridge: AbstractAsyncContextManager[object],
        config: HubConfig,
        clock: Clock,
        directory: Path,
        to: str,
        progress: Callable[[str, int, int], None] = lambda item, done, of: None,
    ) -> None:
        self._here, self._there = here, there
        self._old = JetStreamApi(here, timeout_s=API_TIMEOUT_S)
        self._new = JetStreamApi(there, timeout_s=API_TIMEOUT_S)
        self._bridge = bridge
        self._secret = read_keys(directory).up_api
        self._config = config
        self._clock = clock
        self._directory = directory
        self._move = Move(to)
        self._progress = progress
        self._created: dict[str, str] = {}
        self._sides: dict[str, SideBySide] = {}
        self._mirrors: list[str] = []

    async def run(self, *, prepare: bool = False) -> dict[str, Json]:
        """Mirror everything, switch, compare it, and make the files of the new hub directory.

        Run again after it was cut short, it goes on where it was. With ``prepare`` it ends in sync,
        before the switch. Returns the state of each stream there.

        Raises:
            HubError: the other server has a control plane, holds data or refuses, or what came there
                is not what is here.
        """
        self._move = self._begun() or self._move
        await require_stopped(self._there)
        await until_it_answers(self._new, self._move.to)
        moving = await stream_names(self._old)
        names = sorted(
            (each for each in moving if not _stays(each)),
            key=lambda name: (not is_shard(name), name),
        )
        await self._require_room(names)
        self._note()
        async with self._bridge:
            for name in names:
                await self._mirror(name)
            if not self._move.switched:
                await self._catch_up()
            if not prepare:
                await self._switch(names)
        there = sorted(await stream_names(self._new) & set(names))
        return {name: await self._state(name) for name in there}

    async def abort(self) -> list[str]:
        """Delete the mirrors at the other server, and let the hub run here again.

        Returns the names of the streams that went.

        Raises:
            HubError: there was no migration to it, its control plane runs, or it refused.
        """
        self._move = self._require_begun()
        await require_stopped(self._there)
        for config in self._move.closed.values():
            await self._old.update_stream(config)
        staying = sorted(filter(_stays, await stream_names(self._new)))
        gone = [
            name for name in [*self._move.streams, *staying] if await self._new.delete_stream(name)
        ]
        for name in await stream_names(self._old):
            await end_mirror(self._old, name)
        shutil.rmtree(self._directory / HANDOVER, ignore_errors=True)
        forget_move(self._directory)
        return gone

    async def remove(self) -> list[str]:
        """Delete the streams here, once the hub runs at the other server; return their names.

        Raises:
            HubError: nothing has moved there, no control plane runs there, or a stream of it has less
                than the one here.
        """
        self._move = self._require_begun()
        if not self._move.done:
            raise BackupError("the migration has not come to its end", hint="run it again")
        if not await answers(self._there):
            raise BackupError(
                f"no control plane runs at {self._move.to}: it may not have what is here",
                hint="start it there first: backhaul-hub up",
            )
        for name in self._move.streams:
            here, there = await self._old.stream_info(name), await self._new.stream_info(name)
            if here and (not there or there["state"]["last_seq"] < here["state"]["last_seq"]):
                raise BackupError(f"{name} at {self._move.to} has less than what is here")
        there_are = await stream_names(self._old)
        gone = sorted(each for each in there_are if each in self._move.streams or _stays(each))
        for name in gone:
            await self._old.delete_stream(name)
        return gone

    def _note(self) -> None:
        note_move(self._directory, self._move)

    def _begun(self) -> Move | None:
        move = move_of(self._directory)
        if move is not None and move.to != self._move.to:
            raise BackupError(
                f"a migration to {move.to} was begun", hint="go on with it, or abort it, there"
            )
        return move

    def _require_begun(self) -> Move:
        move = self._begun()
        if move is None:
            raise BackupError("no migration was begun from here")
        return move

    async def _require_room(self, names: list[str]) -> None:
        """See that nothing of another hub is at the other server; empty streams make room."""
        if sorted(await stream_names(self._new)) == sorted(await stream_names(self._old)):
            for name in names[:1]:
                old = await self._old.info(name)
                new = await self._new.info(name)
                if old["created"] == new["created"]:
                    raise BackupError(f"{self._move.to} is the server that this hub has already")
        for name in names[:1]:
            require_alone(await self._old.info(name))
        for name in [*names, *sorted(filter(_stays, await stream_names(self._new)))]:
            info = await self._new.stream_info(name)
            if info is None or name in self._move.streams or self._move.switched:
                continue
            if info["state"]["messages"]:
                raise BackupError(
                    f"{self._move.to} holds {info['state']['messages']:,} messages in {name}",
                    hint="move to a hub that is new: backhaul-hub init",
                )
            await self._new.delete_stream(name)

    # While the hub works

    async def _mirror(self, name: str) -> None:
        """Begin a mirror, or see that it is there; a stream that cannot have one is copied at the switch."""
        config = (await self._old.info(name))["config"]
        if name not in self._move.streams:
            self._move.streams.append(name)
            self._note()
        self._sides[name] = SideBySide(name, self._here, self._there, self._old, self._new)
        there = await self._new.stream_info(name)
        if there is not None and not there["config"].get("mirror"):
            return  # it was promoted, or copied, before a run was cut short
        if can_be_mirrored(config) and await begin_mirror(
            self._old, self._new, config, self._secret
        ):
            self._mirrors.append(name)

    async def _catch_up(self) -> None:
        """Wait until every mirror is close behind, and most of it compared."""
        while True:
            behind = [await self._behind(name) for name in self._mirrors]
            uncompared = [await self._sides[name].look() for name in self._mirrors]
            if max(behind, default=0) <= _BEHIND_MESSAGES_MAX and (
                max(uncompared, default=0) <= _UNCOMPARED_MAX
            ):
                return
            await asyncio.sleep(_LOOK_S)

    async def _behind(self, name: str) -> int:
        was, now = (
            (await self._old.info(name))["state"],
            await self._state(name),
        )
        last: int = was["last_seq"] if was["messages"] else 0
        self._progress(name, min(last, now["last_seq"]), last)
        return max(0, last - int(now["last_seq"]))

    async def _state(self, name: str) -> Json:
        state: Json = (await self._new.info(name))["state"]
        return state

    # While it stands still

    async def _switch(self, names: list[str]) -> None:
        self._move.switched = True
        self._note()  # from now on `up` refuses here
        await stop(self._here)
        await self._drain_relays(names)
        for name in names:
            await self._close(name)
        for name in names:
            await self._finish(name)
        await begin_down(self._new, self._config, self._clock)
        async with alone_with(self._directory, "backhaul-hub migrate", wait_s=ENDS_S_MAX):
            await asyncio.to_thread(self._hand_over)
        self._move.done = True
        self._note()

    async def _drain_relays(self, names: list[str]) -> None:
        """Have vehicles sourced no more, and UP take the messages on their way. Vehicles are asked for the rest."""
        for name in sorted(await stream_names(self._old)):
            if is_passing(name) and name != PUSH:
                config = (await self._old.info(name))["config"]
                await self._old.update_stream(config | {"sources": []})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_RELAYS_S_MAX):
                for name in filter(is_shard, names):
                    while await self._lags(name):  # noqa: ASYNC110 - nobody says so
                        await asyncio.sleep(_LOOK_S / 10)

    async def _lags(self, shard: str) -> bool:
        """Tell whether an UP stream has not taken all of its relay."""
        for source in (await self._old.info(shard)).get("sources") or []:
            relay = await self._old.stream_info(source["name"])
            if relay is not None and source.get("seq", 0) < relay["state"]["last_seq"]:
                return True
        return False

    async def _close(self, name: str) -> None:
        """Have a stream take nothing more in: its writers are told so, and lose nothing."""
        if name not in self._move.closed:
            config = (await self._old.info(name))["config"]
            self._move.closed[name] = config
            self._note()
        config = self._move.closed[name]
        if not config.get("mirror"):
            shut = {"subjects": [f"hub.moved.{name}"], "sources": []}
            await self._old.update_stream(config | shut)

    async def _finish(self, name: str) -> None:
        """Bring the last of a stream there, compare, and make it a stream of its own."""
        config = promoted(self._move.closed[name])
        side, there = self._sides[name], await self._new.stream_info(name)
        if there is not None and there["config"].get("mirror"):
            await self._take_last(name)
            if await side.differs():
                # Something was deleted here meanwhile, which no mirror hears of.
                await self._new.delete_stream(name)
                there = None
            else:
                await self._new.update_stream(config)
        if there is None:
            snapshot = await Snapshot.begin(self._here, self._old, name)
            await copy(snapshot, self._there, self._new, lambda _: config)
        if wrong := await side.differs():
            raise BackupError(f"{name} is not at {self._move.to} as it is here: {wrong}")
        await end_mirror(self._old, name)
        old = await self._old.info(name)
        new = await self._new.info(name)
        self._created[old["created"]] = new["created"]
        size: int = old["state"]["last_seq"]
        self._progress(name, size, size)

    async def _take_last(self, name: str) -> None:
        try:
            async with asyncio.timeout(_LAST_S_MAX):
                while not await all_mirrored(self._old, self._new, name):
                    await self._behind(name)
                    await asyncio.sleep(_LOOK_S / 10)
        except TimeoutError:
            raise BackupError(
                f"{name}: the last messages do not come to {self._move.to}",
                hint="run it again, or take it back with --abort",
            ) from None

    def _hand_over(self) -> None:
        """Write the files of the new hub's directory: hub.db, and the vehicles' files."""
        target = self._directory / HANDOVER
        try:
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(mode=0o700)
            copy_database(self._directory / REGISTRY, target / REGISTRY)
            set_created(target / REGISTRY, self._created)
            for path in self._directory.glob("devices/*/*"):
                place = target / path.relative_to(self._directory)
                private_directory(place.parent)
                place_file(path, place)
        except OSError as error:
            raise BackupError(f"{target}: {error.strerror}") from error

"""The hub's streams: brought in line at the start, and made anew where they are gone. The sources of UP are watched."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog
from nats.errors import Error as NatsError

from backhaul_codec.subjects import DICTIONARY_STREAM
from backhaul_hub.commands.service import CommandShell
from backhaul_hub.control.dictionary_shell import DictionaryShell
from backhaul_hub.control.fleet import Fleet
from backhaul_hub.control.gate import Gate
from backhaul_hub.control.ground import Ground
from backhaul_hub.control.reading import Reading
from backhaul_hub.control.subsystem import Subsystem, Tasks
from backhaul_hub.control.sync_shell import SyncShell
from backhaul_hub.errors import HubError
from backhaul_hub.lane_names import DOWN
from backhaul_hub.links.down_end import DownEnd
from backhaul_hub.links.feeds import Feeds
from backhaul_hub.nats.jetstream import Json
from backhaul_hub.shards import is_passing, relay_name, up_name
from backhaul_hub.streams.streams import (
    declared_streams,
    quiet_undeclared_shards,
    reconcile,
    stream_names,
)
from backhaul_hub.streams.twin_streams import SHADOW, STATE

log = structlog.get_logger(__name__)

_INTERVAL_S = 1.0
# A question that was under way as the server went is not answered; what stands in memory waits to be made anew.
_NAMES_S_MAX = 3.0


@dataclass(eq=False)
class Streams(Subsystem):
    """Brings the streams in line, and looks at them every second.

    Args:
        lower_limits: whether streams may be given lower limits, which drops data.
    """

    _ground: Ground
    _fleet: Fleet
    _gate: Gate
    _sync: SyncShell
    _commands: CommandShell
    _reading: Reading
    _dictionaries: DictionaryShell
    _lower_limits: bool
    # Until all that belongs to them is there again, which a server may leave half done.
    _deleted: set[str] = field(default_factory=set)

    async def start(self) -> None:
        """Bring the streams in line with hub.toml, and look at where DOWN ends."""
        ground = self._ground
        self.feeds = Feeds(ground.api, ground.keys.source_api, ground.config.fleet.shards)
        made = [each for each in declared_streams(ground.config) if await self._reconcile(each)]
        self.down = await DownEnd.open(ground.api, ground.registry)
        ground.api.on_stored = self.down.stored
        for name in await quiet_undeclared_shards(ground.api, ground.config.fleet.shards):
            log.warning("undeclared_shard_takes_in_no_more", stream=name)
        for shard in range(ground.config.fleet.shards):
            info = await ground.api.info(up_name(shard))
            await self.feeds.look(shard, info, ground.clock.monotonic_s())
        for declared in made:
            await self._feed_from(declared["name"])

    def tasks(self) -> Tasks:
        """Return the watch on the streams."""
        yield self.run()

    async def run(self) -> None:
        """Look until cancelled; trouble is logged once and waited out."""
        # Each by itself: no stream that cannot be made anew, and no shard without a leader, is to leave
        # a lane of another unwatched for as long.
        looks = (self.remake_deleted, self._look_at_down, self._look_at_shards)
        trouble = False
        while True:
            await asyncio.sleep(_INTERVAL_S)
            errors = [error for look in looks if (error := await _failed(look)) is not None]
            if errors and not trouble:
                log.warning("sources_unknown", error="; ".join(errors))
            elif trouble and not errors:
                log.info("sources_known_again")
            trouble = bool(errors)

    async def remake_deleted(self) -> None:
        """Make streams anew that somebody has deleted while we run.

        Raises:
            HubError: the server refused, or does not answer; the next look goes on with it.
        """
        names = await stream_names(self._ground.api, timeout_s=_NAMES_S_MAX)
        for declared in declared_streams(self._ground.config):
            name = declared["name"]
            if name not in names:
                if is_passing(name):
                    log.info("stream_in_memory_is_made_anew", stream=name)
                else:
                    log.error("stream_was_deleted", stream=name)
                self._deleted.add(name)
            if name not in self._deleted:
                continue
            await self._reconcile(declared)
            await self._made_anew(name)
            self._deleted.discard(name)

    async def _look_at_down(self) -> None:
        if await self.down.look():
            await self._say_again()

    async def _look_at_shards(self) -> None:
        """Look at each shard; at last raise the error that kept us from looking at one."""
        asked_s = self._ground.clock.monotonic_s()
        relays: list[Json | None] = []
        failed: HubError | None = None
        for shard, reader in enumerate(self._reading.readers):
            relays.append(None)
            try:
                relays[-1] = await self._ground.api.info(relay_name(shard))
                info = await self._ground.api.info(up_name(shard))
                reader.note_state(info)
                await self.feeds.look(shard, info, self._ground.clock.monotonic_s())
            except HubError as error:
                failed = error
        for device in self._fleet.sources.look(relays, asked_s, self._gate.leafs.links):
            log.warning("link_cut", device=device, why="none of its lanes was ever heard over it")
            await self._gate.leafs.cut(device)
        if failed is not None:
            raise failed

    async def _reconcile(self, declared: Json) -> bool:
        """Bring a stream in line; return whether it had to be made."""
        done = await reconcile(self._ground.api, declared, lower_limits=self._lower_limits)
        for change in done:
            log.info("stream_reconciled", change=change)
        return done == [f"create {declared['name']}"]

    async def _feed_from(self, stream: str) -> None:
        """Where this is a relay that was made just now, have its UP look for it: by itself it would in 10 s."""
        for shard in range(self._ground.config.fleet.shards):
            if relay_name(shard) == stream:
                info = await self._ground.api.info(up_name(shard))
                await self.feeds.feed(shard, info["config"], anew=True)

    async def _made_anew(self, stream: str) -> None:
        """Put back the contents and consumers of a stream that somebody had deleted."""
        await self._feed_from(stream)
        if stream == DOWN:
            for device in self._fleet.devices.active().values():
                await self._fleet.make_writable(device)
        elif stream == STATE:
            self._sync.state_lost()
        elif stream == SHADOW:
            self._sync.shadow_lost()
        elif stream == DICTIONARY_STREAM:
            await self._dictionaries.book.reconcile()

    async def _say_again(self) -> None:
        """Tell all vehicles again the words that DOWN has lost."""
        self._reading.notifier.forget()
        self._reading.presence.forget()
        self._commands.down_was_made_anew()
        self._gate.rotations.down_was_made_anew()
        for device, link in list(self._gate.leafs.links.items()):
            try:
                # Both ends compare their heads when a link comes up.
                if link.up:
                    await self._gate.leafs.cut(device)
            except (HubError, NatsError) as error:
                log.warning("link_not_cut", device=device, error=str(error))


async def _failed(look: Callable[[], Awaitable[None]]) -> str | None:
    """Look; return why that did not succeed, None where it did."""
    try:
        await look()
    except (HubError, NatsError) as error:
        return str(error) or repr(error)
    return None

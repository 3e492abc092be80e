"""Watching the hub's streams: a lost one is made anew, and UP's sources are looked at."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog
from nats.errors import Error as NatsError

from backhaul_hub.errors import HubError
from backhaul_hub.shards import up_name
from backhaul_hub.streams.streams import declared_streams, stream_names

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from backhaul_hub.clock import Clock
    from backhaul_hub.config import HubConfig
    from backhaul_hub.device import Link
    from backhaul_hub.links.down_end import DownEnd
    from backhaul_hub.links.source_keeper import SourceKeeper
    from backhaul_hub.nats.jetstream import JetStreamApi, Json
    from backhaul_hub.uplink.reader import UplinkReader

log = structlog.get_logger(__name__)

_INTERVAL_S = 1.0


class StreamWatch:
    """Looks at the streams every second.

    Args:
        readers: of UP, one a shard; they and `sources` are told how the shards are.
        links: of all devices.
        reconcile: makes a declared stream, or brings it in line.
        on_made: called with the name of a stream that was made anew; where it fails, again at the next look.
        on_down_lost: called where DOWN had gone back.
    """

    def __init__(
        self,
        config: HubConfig,
        clock: Clock,
        api: JetStreamApi,
        down: DownEnd,
        sources: SourceKeeper,
        readers: Sequence[UplinkReader],
        links: Mapping[str, Link],
        *,
        reconcile: Callable[[Json], Awaitable[None]],
        on_made: Callable[[str], Awaitable[None]],
        on_down_lost: Callable[[], Awaitable[None]],
    ) -> None:
        self._config = config
        self._clock = clock
        self._api = api
        self._down = down
        self._sources = sources
        self._readers = readers
        self._links = links
        self._reconcile = reconcile
        self._on_made = on_made
        self._on_down_lost = on_down_lost
        # Until all that belongs to them is there again, which a server may leave half done.
        self._deleted: set[str] = set()

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
        names = await stream_names(self._api)
        for declared in declared_streams(self._config):
            name = declared["name"]
            if name not in names:
                log.error("stream_was_deleted", stream=name)
                self._deleted.add(name)
            if name not in self._deleted:
                continue
            await self._reconcile(declared)
            await self._on_made(name)
            self._deleted.discard(name)

    async def _look_at_down(self) -> None:
        if await self._down.look():
            await self._on_down_lost()

    async def _look_at_shards(self) -> None:
        """Look at each shard; at last raise the error that kept us from looking at one."""
        asked_s = self._clock.monotonic_s()
        infos: list[Json | None] = []
        failed: HubError | None = None
        for shard in range(self._config.fleet.shards):
            try:
                infos.append(await self._api.request(f"STREAM.INFO.{up_name(shard)}"))
            except HubError as error:
                infos.append(None)
                failed = error
        for reader, info in zip(self._readers, infos, strict=True):
            if info is not None:
                reader.note_state(info)
        self._sources.look(infos, asked_s, self._links)
        if failed is not None:
            raise failed


async def _failed(look: Callable[[], Awaitable[None]]) -> str | None:
    """Look; return why that did not succeed, None where it did."""
    try:
        await look()
    except (HubError, NatsError) as error:
        return str(error) or repr(error)
    return None

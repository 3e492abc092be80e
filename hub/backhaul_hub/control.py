"""The control plane: what runs behind `backhaul-hub up`.

One TaskGroup: readers of UP, the keeper of the sources, the watch on leafs, the teller of
watermarks and gaps. Order of a shutdown: they are cancelled, then subscriptions, connections and
hub.db are closed; what a reader had not stored yet is read again at the next start.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import structlog
from nats.errors import Error as NatsError

from backhaul_codec.subjects import LIVE

from .blob_service import BlobService
from .clock_service import ClockService
from .command_service import serve_commands
from .command_shell import CommandShell
from .connection import connect, watch_connections
from .continuity import Continuity
from .down_consumers import drop_node_consumers, ensure_down_consumers
from .errors import HubError, JetStreamError
from .jetstream import JetStreamApi
from .leaf_config import leaf_name
from .leafs import Leafs
from .registry import Registry
from .report import Report
from .sources import (
    SILENT_LINK_S,
    SOURCES_ADVISED_MAX,
    OwedWatch,
    Place,
    SourcePlan,
    SourceWatch,
    apply_sources,
    link_idle_s,
    owes_greeting,
    place_of,
    places_of,
    sourced,
    sources_by_shard,
)
from .streams import (
    DOWN,
    declared_streams,
    quiet_undeclared_shards,
    reconcile,
    shard_of,
    stream_names,
    up_name,
)
from .sync_shell import SyncShell
from .telling import Teller
from .twin_streams import STATE
from .uplink import UplinkReader
from .word_book import WordBook
from .word_store import restore as restore_words

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from .clock import Clock
    from .config import HubConfig
    from .consumers import Consumer
    from .jetstream import Json
    from .registry import Device

log = structlog.get_logger(__name__)

DEVICES_SERVICE = "hub.devices"
RELOAD_SERVICE = "hub.reload"
_LEAFS_INTERVAL_S = 5.0
_SOURCES_INTERVAL_S = 1.0
_RETRY_S = 1.0


class ControlPlane:
    """One hub's control plane.

    Args:
        directory: the hub directory, for hub.db.
        config: hub.toml, checked.
        lower_limits: whether streams may be given lower limits, which drops data.
    """

    def __init__(
        self, directory: Path, config: HubConfig, clock: Clock, *, lower_limits: bool = False
    ) -> None:
        self._directory = directory
        self._config = config
        self._clock = clock
        self._lower_limits = lower_limits
        self._devices: dict[str, Device] = {}
        self._continuity = Continuity()
        self._plans = [SourcePlan() for _ in range(config.fleet.shards)]
        self._sources_due = asyncio.Event()
        self._words = WordBook(self._continuity)
        self._readers: list[UplinkReader] = []
        self._sync = SyncShell(config, clock, lambda: self._devices)
        self._commands = CommandShell(config, clock, lambda: self._devices)
        self._consumers: list[Consumer] = [*self._sync.consumers, self._commands]
        self._lags: dict[tuple[str, str], int] = {}
        # Connected, and not in hub.db as we know it.
        self._strangers: set[str] = set()
        self._made: dict[int, str] = {}
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Bring the streams in line and serve until `stop`.

        Raises:
            HubError: the server cannot be reached at the start, or a stream cannot be brought in
                line, or hub.db is not usable.
        """
        async with AsyncExitStack() as stack:
            registry = await stack.enter_async_context(
                await Registry.open(self._directory / "hub.db")
            )
            client = await connect(self._config.nats.url, self._config.nats.control)
            stack.push_async_callback(client.close)
            system = await connect(self._config.nats.url, self._config.nats.system)
            stack.push_async_callback(system.close)
            api = JetStreamApi(client)
            for declared in declared_streams(self._config):
                await self._reconcile(api, declared)
            for name in await quiet_undeclared_shards(api, self._config.fleet.shards):
                log.warning("undeclared_shard_takes_in_no_more", stream=name)
            self._continuity.restore(await registry.lanes())
            await restore_words(registry, self._words)
            await self._reload(api, registry)
            for shard, plan in enumerate(self._plans):
                info = await api.request(f"STREAM.INFO.{up_name(shard)}")
                plan.succeeded(sourced(info), self._clock.monotonic_s())
            leafs = Leafs(system, self._clock, self._device_of, self._connected, self._disconnected)
            await leafs.start()
            await self._serve(client, api, registry, leafs)
            await ClockService(client, self._clock, self._token_of).start()
            blobs = BlobService(
                client,
                self._clock,
                self._token_of,
                self._directory / "uploads",
                self._config.artifacts,
            )
            syncing = await self._sync.start(client, api, registry)
            commanding = await self._commands.start(client, api, registry)
            await serve_commands(client, registry)
            self._readers = [
                UplinkReader(
                    up_name(shard),
                    client,
                    api,
                    self._continuity,
                    registry,
                    self._consumers,
                    self._words,
                )
                for shard in range(self._config.fleet.shards)
            ]
            self._teller = Teller(
                api,
                self._continuity,
                self._clock,
                devices=lambda: self._devices,
                links=leafs.links,
                lags=self._lags,
                settled=lambda: all(reader.caught_up for reader in self._readers),
            )
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(work)
                    for work in (
                        leafs.watch(_LEAFS_INTERVAL_S),
                        self._keep_sources(api, registry),
                        self._watch_sources(api, leafs),
                        self._teller.tell_watermarks(self._config.watermark.interval_s),
                        self._teller.ask_for_gaps(),
                        blobs.run(),
                        watch_connections(client, system),
                        *syncing,
                        *commanding,
                        *(reader.run() for reader in self._readers),
                    )
                ]
                log.info("ready", devices=len(self._devices), shards=len(self._readers))
                await self._stop.wait()
                await _cancel(tasks)

    def stop(self) -> None:
        """Let `run` come to its end."""
        self._stop.set()

    async def _reconcile(self, api: JetStreamApi, declared: Json) -> None:
        for change in await reconcile(api, declared, lower_limits=self._lower_limits):
            log.info("stream_reconciled", change=change)

    async def _remake_streams(self, api: JetStreamApi) -> None:
        """Make streams anew that somebody has deleted while we run."""
        names = await stream_names(api)
        for declared in declared_streams(self._config):
            name = declared["name"]
            if name in names:
                continue
            log.error("stream_was_deleted", stream=name)
            await self._reconcile(api, declared)
            if name == DOWN:
                for device in self._devices.values():
                    await _make_writable(api, device)
                self._teller.forget()
                self._commands.down_was_made_anew()
            elif name == STATE:
                self._sync.state_lost()

    def _note_made(self, shard: int, info: Json, now_s: float) -> None:
        """See whether an UP stream is the one it was: another one has other sources, or none."""
        plan, known = self._plans[shard], self._made.get(shard)
        self._made[shard] = info["created"]
        if known not in (None, info["created"]):
            plan.succeeded(sourced(info), now_s)
            self._sources_due.set()

    async def _reload(self, api: JetStreamApi, registry: Registry) -> None:
        """Learn of the devices in hub.db, and see that each can be written to."""
        known = await registry.devices()
        for device in known.values():
            if device != self._devices.get(device.id):
                await _make_writable(api, device)
        before, self._devices = self._devices, known
        for device in known.values():
            if device.id in before:
                self._change_lanes(before[device.id], device)
        for id_ in sorted(self._strangers & known.keys()):
            self._strangers.discard(id_)
            self._connected(id_)
        self._warn_of_full_shards()
        self._sync.core.tree.forget()
        for name in await drop_node_consumers(api, known.values()):
            log.info("node_consumer_dropped", consumer=name)

    def _warn_of_full_shards(self) -> None:
        counts = sources_by_shard(self._devices.values(), self._config.fleet.shards)
        for shard, count in sorted(counts.items()):
            if count > SOURCES_ADVISED_MAX:
                log.warning("shard_has_many_sources", stream=up_name(shard), sources=count)

    def _change_lanes(self, before: Device, device: Device) -> None:
        """Source the lanes that a connected device has now, and no others."""
        plan, was, now = self._plan(device.id), set(places_of(before)), set(places_of(device))
        if was != now and plan.wanted & was:
            plan.disconnected(*(was - now))
            plan.connected(*(now - was))
            self._sources_due.set()

    def _device_of(self, leaf: str) -> str | None:
        device = self._devices.get(leaf.rpartition("-")[0])
        return device.id if device and leaf == leaf_name(device.id, device.token) else None

    def _token_of(self, device: str) -> str | None:
        known = self._devices.get(device)
        return known.token if known else None

    def _connected(self, device: str) -> None:
        known = self._devices.get(device)
        if known is None:
            self._strangers.add(device)
        else:
            self._plan(device).connected(*places_of(known))
        self._sources_due.set()

    def _disconnected(self, device: str) -> None:
        self._strangers.discard(device)
        known = self._devices.get(device)
        places = places_of(known) if known else []
        self._plan(device).disconnected(*places)
        self._sources_due.set()
        for place in places:
            self._lags.pop(place, None)  # nobody knows how far it is ahead now

    def _plan(self, device: str) -> SourcePlan:
        return self._plans[shard_of(device, self._config.fleet.shards)]

    async def _keep_sources(self, api: JetStreamApi, registry: Registry) -> None:
        """Apply what the plans say whenever something changed; try again where that failed."""
        while True:
            await self._sources_wait()
            self._sources_due.clear()
            for shard, plan in enumerate(self._plans):
                try:
                    if self._strangers:
                        await self._reload(api, registry)
                    while (target := plan.next_update(self._clock.monotonic_s())) is not None:
                        await apply_sources(api, up_name(shard), self._devices, target)
                        plan.succeeded(target, self._clock.monotonic_s())
                except (HubError, NatsError) as error:
                    plan.failed()
                    log.warning("sources_not_applied", stream=up_name(shard), error=str(error))
                    await asyncio.sleep(_RETRY_S)
                    self._sources_due.set()

    async def _sources_wait(self) -> None:
        """Wait until a plan may have something to do: a change, or a set-up's time is over."""
        times = [time for plan in self._plans if (time := plan.look_again_s()) is not None]
        wait_s = max(0.0, min(times) - self._clock.monotonic_s()) if times else None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._sources_due.wait()

    async def _watch_sources(self, api: JetStreamApi, leafs: Leafs) -> None:
        """Read the sources' lag, and set up again those that a connected device does not feed."""
        link = self._config.link
        watch = SourceWatch(link.stalled_after_s, link.stuck_after_s)
        owed = OwedWatch()
        trouble = False
        while True:
            await asyncio.sleep(_SOURCES_INTERVAL_S)
            asked_s = self._clock.monotonic_s()
            try:
                await self._remake_streams(api)
                infos = [
                    await api.request(f"STREAM.INFO.{up_name(shard)}")
                    for shard in range(self._config.fleet.shards)
                ]
            except (HubError, NatsError) as error:
                if not trouble:
                    log.warning("sources_unknown", error=str(error))
                trouble = True
                continue
            if trouble:
                log.info("sources_known_again")
                trouble = False
            now_s = self._clock.monotonic_s()
            for shard, info in enumerate(infos):
                self._readers[shard].note_state(info)
                self._note_made(shard, info, now_s)
            sources = [source for info in infos for source in info.get("sources") or []]
            idle_s = link_idle_s(sources)
            for source in sources:
                place = place_of(source)
                plan = self._plan(place.device)
                self._lags[place] = source["lag"]
                if source["active"] >= 0:
                    plan.established(place, asked_s)
                leaf = leafs.links.get(place.device)
                if leaf is None or not leaf.up:
                    owed.complaint(place, None, now_s)
                    continue
                up_s = (self._clock.now_ns() - leaf.since_ns) / 1e9
                silent_s = idle_s.get(place.device, 0.0)
                # A ping that was answered since; the list that says so is taken now and then.
                answered_s = (self._clock.now_ns() - leaf.answered_ns) / 1e9
                if answered_s + _LEAFS_INTERVAL_S < silent_s:
                    silent_s = 0.0
                owes = None
                if silent_s < SILENT_LINK_S:
                    owes = self._owed_arrivals(place, leaf.since_ns)
                why = watch.complaint(source, up_s, now_s, silent_s) or owed.complaint(
                    place, owes, now_s
                )
                if why is not None and place in plan.wanted:
                    log.warning("source_kicked", device=place.device, lane=place.lane, why=why)
                    plan.connected(place)
                    self._sources_due.set()

    def _owed_arrivals(self, place: Place, up_since_ns: int) -> int | None:
        """Return how many messages ever came of a lane that owes some, None where it owes none."""
        known = self._continuity.current(place.device).get(place.lane)
        if known is None:
            return None
        state = known[1]
        owes = not state.whole or (
            place.lane == LIVE
            and owes_greeting(state.last_seen_ns, up_since_ns, self._clock.now_ns())
        )
        return state.messages + state.repeats if owes else None

    async def _serve(
        self, client: Client, api: JetStreamApi, registry: Registry, leafs: Leafs
    ) -> None:
        """Answer the command line's questions."""
        report = Report(
            self._continuity, leafs.links, self._lags, self._words.clocks, self._sync.report
        )

        async def devices(message: Msg) -> None:
            await message.respond(report.page(self._devices, self._readers, message.data.decode()))

        async def reload(message: Msg) -> None:
            await self._reload(api, registry)
            await message.respond(b"{}")

        await client.subscribe(DEVICES_SERVICE, cb=devices)
        await client.subscribe(RELOAD_SERVICE, cb=reload)


async def _make_writable(api: JetStreamApi, device: Device) -> None:
    """See to a device's durable on DOWN; where it cannot be, the others are served all the same."""
    try:
        done = await ensure_down_consumers(api, device)
    except JetStreamError as error:
        log.warning("device_cannot_be_written_to", device=device.id, error=str(error))
        return
    if done:
        log.info("device_added", device=device.id, consumers=done)


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait until they have ended.

    More than once where needed: before Python 3.12 `asyncio.wait_for`, which nats-py's requests
    wait with, loses a cancellation that arrives together with the answer (bpo-37658).
    """
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=_RETRY_S)

"""The control plane: what runs behind `backhaul-hub up`.

One TaskGroup: readers of UP, the keeper of the sources, the watches on leafs and streams, the teller of
watermarks and gaps. Order of a shutdown: they are cancelled, then subscriptions, connections and
hub.db are closed; what a reader had not stored yet is read again at the next start.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import structlog
from nats.errors import Error as NatsError

from backhaul_codec.protocol.identity import leaf_name
from backhaul_hub.access.identity_documents import Documents
from backhaul_hub.access.keys import read_keys
from backhaul_hub.access.logins import add_twin_login, creds_file
from backhaul_hub.access.push import AccountKeeper
from backhaul_hub.access.revocation_log import RevocationLog
from backhaul_hub.access.revocations import UNKNOWN_KEY
from backhaul_hub.access.service import push_on_request
from backhaul_hub.artifacts.service import BlobService
from backhaul_hub.broadcast.alerts import LiveAlerts
from backhaul_hub.broadcast.events import told_command
from backhaul_hub.broadcast.presence import Presence
from backhaul_hub.commands.requests import listed
from backhaul_hub.commands.service import CommandShell
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.control.endpoints import Services, endpoints
from backhaul_hub.control.found import Found
from backhaul_hub.control.single_instance import Sole
from backhaul_hub.control.stream_watch import StreamWatch
from backhaul_hub.control.sync_shell import SyncShell
from backhaul_hub.db.devices import read_devices
from backhaul_hub.db.turn import stored
from backhaul_hub.enrol.adopter import Adopter
from backhaul_hub.enrol.rotation_keeper import RotationKeeper
from backhaul_hub.enrol.service import EnrolmentService
from backhaul_hub.errors import HubError
from backhaul_hub.flood.guard import FloodGuard
from backhaul_hub.health import metrics_server
from backhaul_hub.health.metrics import METRICS
from backhaul_hub.health.report import Report
from backhaul_hub.health.watch import HealthWatch
from backhaul_hub.hub_time import HubTime, keep_record
from backhaul_hub.lane_names import DOWN, lanes_of
from backhaul_hub.links.clock_service import ClockService
from backhaul_hub.links.down_consumers import drop_stale_consumers, make_writable
from backhaul_hub.links.down_end import DownEnd
from backhaul_hub.links.leaf_connections import LEAFS_INTERVAL_S, Leafs
from backhaul_hub.links.recent_setups import SetUps
from backhaul_hub.links.reception import Reception
from backhaul_hub.links.reset_service import ResetService
from backhaul_hub.links.source_keeper import SourceKeeper
from backhaul_hub.nats.connection import connect, heard, watch_connections
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.people.ask_service import AskService
from backhaul_hub.people.services import Hub, PeopleServices
from backhaul_hub.servers import urls
from backhaul_hub.shards import shard_of, up_name
from backhaul_hub.streams.streams import declared_streams, quiet_undeclared_shards, reconcile
from backhaul_hub.streams.twin_streams import SHADOW, STATE
from backhaul_hub.sync.service import SyncService
from backhaul_hub.tls.watch import CertificateWatch
from backhaul_hub.uplink.device_words import WordBook
from backhaul_hub.uplink.device_words_store import restore as restore_words
from backhaul_hub.uplink.imported_rows import trouble as import_trouble
from backhaul_hub.uplink.known_epochs import Known
from backhaul_hub.uplink.lane_rows import read_lanes
from backhaul_hub.uplink.notify import Teller
from backhaul_hub.uplink.reader import UplinkReader
from backhaul_hub.vehicles.keeper import VehicleKeeper

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from nats.aio.client import Client

    from backhaul_hub import questions
    from backhaul_hub.access.keys import HubKeys
    from backhaul_hub.clock import SteadyClock
    from backhaul_hub.commands.command import Command
    from backhaul_hub.config import HubConfig
    from backhaul_hub.db.store import Registry
    from backhaul_hub.device import Device
    from backhaul_hub.nats.jetstream import Json
    from backhaul_hub.uplink.consumer import Consumer
    from backhaul_hub.vehicles.core import Vehicles

log = structlog.get_logger(__name__)

_ACCOUNTS_INTERVAL_S = 10.0
_RETRY_S = 1.0
_CLUSTER_REQUEST_S = 4.0
_CLUSTER_PATIENCE_S = 30.0


class ControlPlane:
    """One hub's control plane.

    Args:
        directory: the hub directory, for hub.db.
        config: hub.toml, checked.
        lower_limits: whether streams may be given lower limits, which drops data.
    """

    def __init__(
        self, directory: Path, config: HubConfig, clock: SteadyClock, *, lower_limits: bool = False
    ) -> None:
        self._directory = directory
        self._config = config
        self._clock = time = HubTime.of(directory, config.clock, clock)
        self._lower_limits = lower_limits
        self._devices: dict[str, Device] = {}
        self._learning = asyncio.Lock()
        # Devices without a durable on DOWN, as the server refused it: seen to when we learn again.
        self._unwritable: set[str] = set()
        # Of which DOWN has durables, and hub.db nothing.
        self._unknown: set[str] = set()
        self._continuity = Continuity()
        self._words = WordBook(self._continuity)
        self._readers: list[UplinkReader] = []
        self._sync = SyncShell(config, time, lambda: self._devices)
        self._commands = CommandShell(config, time, lambda: self._devices, self._tell_command)
        self._alerts = LiveAlerts(config.twin.env, self._sync.tell_live, self._sync.ancestors)
        self._consumers: list[Consumer] = [*self._sync.consumers, self._commands]
        self._sources = SourceKeeper(config, time, self._continuity, lambda: self._devices)
        self._set_ups = SetUps(time, self._tell_again)
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Bring the streams in line and serve until `stop`.

        Raises:
            HubError: the server cannot be reached at the start, or a stream cannot be brought in
                line, or hub.db is not usable.
        """
        async with AsyncExitStack() as stack:
            keys = read_keys(self._directory)
            servers = len(urls(self._config.nats.url))
            system = await connect(self._config.nats.url, self._config.nats.system)
            stack.push_async_callback(system.close)
            # Before all else: one that is not alone changes nothing. In account SYS, which servers have
            # in their configuration: the others may be lost.
            sole = Sole(system, self._clock.now_ns(), system.new_inbox())
            await sole.start()
            found = await Found.open(self._directory, self._config, keys, system)
            stack.push_async_callback(found.close)
            registry = found.registry
            self._add_twin_login(keys)
            # Without accounts nobody else logs in.
            revoked = RevocationLog(self._directory, keys.operator_signing)
            accounts = AccountKeeper(keys, registry, self._clock, servers=servers, log=revoked)
            await push_on_request(accounts, system)
            await _push(accounts, system)
            client = await found.connected()
            # Closed before the others: what is asked last is answered over them.
            reception = Reception(lambda: connect(self._config.nats.url, self._config.nats.control))
            stack.push_async_callback(reception.close)
            guard = FloodGuard(
                self._config.flood,
                self._clock,
                lambda devices: accounts.keep_out(system, devices),
                reception.deaf,
            )
            # A cluster that has no leader does not answer, and has one again within seconds.
            api = (
                JetStreamApi(client, timeout_s=_CLUSTER_REQUEST_S, patience_s=_CLUSTER_PATIENCE_S)
                if servers > 1
                else JetStreamApi(client)
            )
            for declared in declared_streams(self._config):
                await self._reconcile(api, declared)
            down = await DownEnd.open(api, registry)
            api.on_stored = down.stored
            for name in await quiet_undeclared_shards(api, self._config.fleet.shards):
                log.warning("undeclared_shard_takes_in_no_more", stream=name)
            self._continuity.restore(await read_lanes(registry))
            await restore_words(registry, self._words)
            await self._reload(api, registry)
            await self._sources.start(api)

            async def learn() -> None:
                await self._reload(api, registry)
                # A node's lanes stand in accounts, and so do revoked keys. A server that is away is told
                # when it is back: nobody has to wait for that.
                await _push(accounts, system)

            documents = Documents(self._directory, self._config, keys)
            self._rotations = RotationKeeper(
                keys, documents, self._clock, lambda: self._devices, learn
            )
            self._consumers.append(self._rotations)
            await self._rotations.look(registry)
            adopter = Adopter(
                *(registry, self._clock, lambda: self._devices),
                *(lambda: self._rotations.rotations, learn),
            )
            leafs = Leafs(
                system,
                keys.account("FLEET").public,
                self._clock,
                self._device_of,
                self._link_up,
                self._link_down,
                self._rotations.connected,
                on_claims=adopter.heard,
                carried=guard.carried,
                servers=servers,
            )
            await leafs.start()
            vehicles = await VehicleKeeper.open(
                *(registry, self._clock, leafs.links, self._continuity)
            )
            report = self._report(leafs, vehicles.vehicles)
            services = self._services(client, api, registry, report, vehicles)
            await services.open(client, early=True)
            await heard(client)
            # Again: a command that found nobody to tell it counts on what is read at the start.
            await self._reload(api, registry)
            await self._rotations.look(registry)
            resets = ResetService(client, self._clock, guard.may_ask, self._source_set_up)
            enrolling = EnrolmentService(registry, documents, self._clock, learn)
            known = Known(api, self._continuity, self._clock, self._reader_of)
            times = ClockService(
                *(client, self._clock, self._token_of, known, guard.may_ask, self._stands_still),
                on_heard=vehicles.hear,
            )
            blobs = BlobService(
                client,
                self._clock,
                self._token_of,
                self._directory / "uploads",
                self._config.artifacts,
                guard.may_ask,
            )
            await reception.open(resets.listen, times.listen, blobs.listen, enrolling.listen)
            syncing = await self._sync.start(client, api, registry)
            commanding = await self._commands.start(client, api, registry)
            await self._alerts.start(client, api)
            asking = AskService(client, services.answer)
            self._readers = [
                UplinkReader(
                    up_name(shard),
                    client,
                    api,
                    self._continuity,
                    registry,
                    self._consumers,
                    self._words,
                    guard.unreadable,
                    guard.expanded,
                )
                for shard in range(self._config.fleet.shards)
            ]
            self._teller = Teller(
                api,
                self._continuity,
                self._clock,
                devices=self._active,
                links=leafs.links,
                lags=self._sources.lags,
                settled=lambda: all(reader.caught_up for reader in self._readers),
                answerer=vehicles.vehicles.identities.answerer,
            )
            self._presence = Presence(*(api, self._clock, self._active, leafs.links, leafs.looks))
            watch = self._watch(api, down, leafs)
            certificates = CertificateWatch(self._directory, system, servers)
            self._health = health = HealthWatch(
                self._config,
                self._clock,
                api,
                self._continuity,
                self._readers,
                devices=self._active,
                links=leafs.links,
                lags=self._sources.lags,
                clocks=self._words.clocks,
                certificates=certificates.until,
                vehicles=vehicles.vehicles,
                flooding=guard.flooding,
                expanding=guard.expanding,
                unknown=lambda: self._unknown,
                older=lambda: accounts.older,
                time=self._clock,
                sync=self._sync.core,
                imports=lambda: import_trouble(registry, api, self._clock.now_ns()),
            )
            await services.open(client)
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(work)
                    for work in (
                        sole.watch(),
                        accounts.keep(system, _ACCOUNTS_INTERVAL_S),
                        leafs.watch(LEAFS_INTERVAL_S),
                        guard.run(system, keys.account("FLEET").public, leafs, servers),
                        self._rotations.run(api, registry, leafs.cut),
                        self._sources.keep(api, lambda: self._reload(api, registry)),
                        watch.run(),
                        self._teller.tell_watermarks(self._config.watermark.interval_s),
                        self._teller.ask_for_gaps(),
                        self._set_ups.run(),
                        blobs.run(),
                        reception.watch(),
                        certificates.run(),
                        health.run(),
                        vehicles.run(),
                        self._presence.run(),
                        keep_record(self._clock, self._directory),
                        metrics_server.serve(self._config.metrics.listen, METRICS, health.samples),
                        watch_connections(client, system),
                        self._alerts.keep(api),
                        adopter.run(),
                        *syncing,
                        *commanding,
                        asking.run(),
                        *(reader.run() for reader in self._readers),
                        self._say_ready(client),
                    )
                ]
                try:
                    await self._stop.wait()
                finally:
                    # Where one has failed, too: the group cancels each of the others once only.
                    await _cancel(tasks)

    def stop(self) -> None:
        """Let `run` come to its end."""
        self._stop.set()

    async def _say_ready(self, client: Client) -> None:
        await heard(client)  # by those who were told to wait for this
        log.info("ready", devices=len(self._devices), shards=len(self._readers))

    def _add_twin_login(self, keys: HubKeys) -> None:
        try:
            if add_twin_login(self._directory, keys, now_s=self._clock.now_ns() // 1_000_000_000):
                log.info("login_of_the_twin_job_made", file=creds_file("twin"))
        except OSError as error:
            # A hub directory that is read only serves vehicles all the same.
            log.warning("no_login_for_the_twin_job", error=str(error))

    async def _reconcile(self, api: JetStreamApi, declared: Json) -> None:
        for change in await reconcile(api, declared, lower_limits=self._lower_limits):
            log.info("stream_reconciled", change=change)

    async def _made_anew(self, api: JetStreamApi, stream: str) -> None:
        """Put back what belongs to a stream that somebody had deleted."""
        if stream == DOWN:
            for device in self._active().values():
                await self._make_writable(api, device)
        elif stream == STATE:
            self._sync.state_lost()
        elif stream == SHADOW:
            self._sync.shadow_lost()

    async def _say_again(self, leafs: Leafs) -> None:
        """Tell all vehicles again what DOWN has lost."""
        self._teller.forget()
        self._presence.forget()
        self._commands.down_was_made_anew()
        self._rotations.down_was_made_anew()
        for device, link in list(leafs.links.items()):
            try:
                # Both ends compare their heads when a link comes up.
                if link.up:
                    await leafs.cut(device)
            except (HubError, NatsError) as error:
                log.warning("link_not_cut", device=device, error=str(error))

    async def _reload(self, api: JetStreamApi, registry: Registry) -> None:
        """Learn of the devices in hub.db, and see that each can be written to."""
        # One after another: what was read before must not be taken in after what was read since.
        async with self._learning:
            await self._learn(api, registry)

    async def _learn(self, api: JetStreamApi, registry: Registry) -> None:
        known = await read_devices(registry)
        for device in known.values():
            same = device == self._devices.get(device.id) and device.id not in self._unwritable
            if not (same or device.revoked_ns):
                await self._make_writable(api, device)
        before, self._devices = self._devices, known
        self._sources.change(before)
        self._sync.devices_changed()
        stale = await drop_stale_consumers(api, known.values())
        for name in stale.dropped:
            log.info("consumer_dropped", consumer=name)
        self._unknown = stale.unknown

    async def _make_writable(self, api: JetStreamApi, device: Device) -> None:
        self._unwritable.add(device.id)
        if await make_writable(api, device):
            self._unwritable.discard(device.id)

    def _link_up(self, device: str) -> None:
        self._sources.connected(device)
        self._commands.link_up(device)
        # A reset may have been the last that a control plane did before it died.
        self._set_ups.note(device)

    def _link_down(self, device: str) -> None:
        self._sources.disconnected(device)
        self._commands.link_down(device)
        self._set_ups.drop(device)

    def _source_set_up(self, device: str) -> None:
        self._commands.source_set_up(device)
        self._set_ups.note(device)

    def _tell_again(self, device: str) -> None:
        """Tell a device what its source may have passed over, but for commands (`source_set_up`)."""
        if self._token_of(device) is not None:
            self._sync.compare_again(device)
            self._teller.tell_again(device)

    def _stands_still(self, device: str, epoch: int, lanes: Mapping[str, int]) -> None:
        """Take in how far lanes go of which the device has heard nothing for a while.

        Either the hub has not got that, and then it is owed, and a source that brings nothing is set up
        anew; or it has, and the device is told again.
        """
        for lane in lanes_of(self._devices[device]):
            if lane in lanes:
                log.info("lane_stands_still", device=device, lane=lane, seq=lanes[lane])
                self._sources.stands_still(LaneKey(device, lane, epoch), lanes[lane])
        self._set_ups.note(device)

    def _device_of(self, leaf: str) -> str | None:
        device = self._devices.get(leaf.rpartition("-")[0])
        if device is None or leaf != leaf_name(device.id, device.token):
            return None
        # Back again it is heard with which key.
        return None if device.public_key.startswith(UNKNOWN_KEY) else device.id

    def _token_of(self, device: str) -> str | None:
        known = self._devices.get(device)
        return known.token if known and not known.revoked_ns else None

    def _active(self) -> dict[str, Device]:
        """Return the devices that may connect: all but those that were revoked."""
        return {id_: device for id_, device in self._devices.items() if not device.revoked_ns}

    def _reader_of(self, device: str) -> UplinkReader | None:
        return self._readers[shard_of(device, len(self._readers))] if self._readers else None

    def _watch(self, api: JetStreamApi, down: DownEnd, leafs: Leafs) -> StreamWatch:
        return StreamWatch(
            *(self._config, self._clock, api, down, self._sources, self._readers, leafs.links),
            reconcile=partial(self._reconcile, api),
            on_made=partial(self._made_anew, api),
            on_down_lost=partial(self._say_again, leafs),
        )

    def _tell_command(self, command: Command) -> None:
        self._sync.tell_live([told_command(command, self._sync.ancestors(command.device))])

    def _report(self, leafs: Leafs, vehicles: Vehicles) -> Report:
        clocks = self._words.clocks
        return Report(
            self._continuity,
            leafs.links,
            self._sources.lags,
            clocks,
            self._sync.report,
            self._rotations.rotations,
            vehicles,
        )

    def _services(
        self,
        client: Client,
        api: JetStreamApi,
        registry: Registry,
        report: Report,
        vehicles: VehicleKeeper,
    ) -> Services:
        async def devices(question: questions.Devices) -> msgspec.Raw:
            await stored(registry)  # what a crash would take back is not told
            return msgspec.Raw(report.page(self._devices, self._readers, question.after))

        async def reload(_: None) -> dict[str, Any]:
            await self._reload(api, registry)
            await self._rotations.look(registry)
            return {}

        async def status(_: None) -> msgspec.Raw:
            return msgspec.Raw(json.dumps(self._health.status()).encode())

        async def stop(_: None) -> dict[str, Any]:
            self.stop()  # takes effect once this is answered
            return {}

        core = self._sync.core
        sync = SyncService(
            *(core, self._sync.readings, registry, self._clock, lambda: self._devices)
        )
        hub = Hub(
            *(client, api, registry, self._clock, self._config.twin.env),
            core=core,
            sync=sync,
            devices=lambda: self._devices,
            report=lambda devices, after: report.page(devices, (), after),
        )
        people = PeopleServices(hub)
        table = endpoints(
            sync,
            people,
            commands=partial(listed, registry),
            devices=devices,
            one_machine=vehicles.one_machine,
            reload=reload,
            status=status,
            stop=stop,
        )
        return Services(table, people.scope)


async def _push(accounts: AccountKeeper, system: Client) -> None:
    """Have the servers know the accounts; where one is away, go on with those that are there."""
    try:
        if pushed := await accounts.push(system):
            log.info("accounts_pushed", accounts=pushed)
    except HubError as error:
        log.warning("accounts_not_pushed", error=str(error))


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait until they have ended.

    More than once where needed: before Python 3.12 `asyncio.wait_for`, which nats-py's requests
    wait with, loses a cancellation that arrives together with the answer (bpo-37658).
    """
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=_RETRY_S)

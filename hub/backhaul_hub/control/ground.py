"""The ground that all other parts stand on: the connections, hub.db, and the accounts that servers know."""

from __future__ import annotations

import contextlib
from contextlib import AsyncExitStack
from pathlib import Path

import structlog
from nats.aio.client import Client

from backhaul_hub.access.keys import HubKeys, read_keys
from backhaul_hub.access.logins import add_later_logins, creds_file
from backhaul_hub.access.push import AccountKeeper
from backhaul_hub.access.signed_log import RevocationLog
from backhaul_hub.backup.carry_revocations import at_servers
from backhaul_hub.backup.lost_registry import require_registry
from backhaul_hub.config import HubConfig
from backhaul_hub.control.single_instance import SingleInstance
from backhaul_hub.control.subsystem import Subsystem, Tasks
from backhaul_hub.db.devices import read_devices
from backhaul_hub.db.lock import ENDS_S_MAX, alone_with
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import HubError, LostRegistryError
from backhaul_hub.hub_time import HubTime
from backhaul_hub.nats.connection import connect, watch_connections
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.servers import urls
from backhaul_hub.standby.leadership import Leadership
from backhaul_hub.streams.replica_watch import ReplicaWatch
from backhaul_hub.streams.streams import declared_streams

log = structlog.get_logger(__name__)

_ACCOUNTS_INTERVAL_S = 10.0
_CLUSTER_REQUEST_S = 4.0
_CLUSTER_PATIENCE_S = 30.0


class Ground(Subsystem):
    """Its attributes are there once it has started."""

    keys: HubKeys
    system: Client
    """In the system account."""
    registry: Registry
    accounts: AccountKeeper
    client: Client
    """In account HUB."""
    api: JetStreamApi
    replicas: ReplicaWatch
    """Of all servers."""

    def __init__(
        self,
        directory: Path,
        config: HubConfig,
        clock: HubTime,
        leadership: Leadership | None = None,
    ) -> None:
        self.leadership = leadership
        """Of this machine among several; None: the hub has one control plane."""
        self.directory = directory
        self.config = config
        self.clock = clock
        self.servers = len(urls(config.nats.url))
        self._open = AsyncExitStack()
        self._open_db = AsyncExitStack()

    async def start(self) -> None:
        """Connect, see that no other control plane runs, take hub.db, and have servers know the accounts."""
        nats = self.config.nats
        self.keys = read_keys(self.directory)
        self.system = await connect(nats.url, nats.system)
        self._open.push_async_callback(self.system.close)
        # Before all else: one that is not alone changes nothing. In account SYS, which servers have
        # in their configuration: the others may be lost.
        # Of several machines that leads whose term it is: others that know of no journal are told.
        since_ns = self.clock.now_ns() if self.leadership is None else 0
        self._alone = SingleInstance(self.system, since_ns, self.system.new_inbox())
        if self.leadership is None:
            await self._alone.start()
            alone = alone_with(self.directory, "the control plane", wait_s=ENDS_S_MAX)
            await self._open.enter_async_context(alone)
        else:
            await self._alone.answer()  # and hub.db has this process alone, also while it follows
        client = await self._open_registry()
        self._add_later_logins()
        # Without accounts nobody else logs in.
        revoked = RevocationLog(self.directory, self.keys.operator_signing)
        self.accounts = AccountKeeper(
            self.keys, self.registry, self.clock, servers=self.servers, log=revoked
        )
        if self.leadership is not None:
            # Before anything that has effect: a machine that led before may only stand still.
            await self.leadership.shut_out_others(
                self.registry, self.accounts, self.system, self.servers
            )
        if self.leadership is None or client is None:
            await self.push()
        if client is None:
            client = await self._logged_in()
            await self._require_registry(client)
        self.client = client
        self.api = self._api(client)
        declared = declared_streams(self.config)
        self.replicas = ReplicaWatch(self.system, self.api, self.servers, declared)
        if self.leadership is not None:
            await self.leadership.open(client)

    def tasks(self) -> Tasks:
        """Return the watch for another control plane, and those on accounts, connections and servers."""
        if self.leadership is None:
            yield self._alone.watch()
        else:
            yield self.push()  # where a server is away that takes seconds, and the one that led has done it
            yield self.leadership.keep_place(self.registry)
        yield self.accounts.keep(self.system, _ACCOUNTS_INTERVAL_S)
        yield watch_connections(self.client, self.system)
        yield self.replicas.run()

    async def stop(self) -> None:
        """Close the connection in account HUB, then hub.db, then the one in the system account."""
        await self._open.aclose()
        if self.leadership is not None:
            await self.leadership.close()

    async def push(self) -> None:
        """Have the servers know the accounts; where one is away, go on with those that are there."""
        try:
            if pushed := await self.accounts.push(self.system):
                log.info("accounts_pushed", accounts=pushed)
        except HubError as error:
            log.warning("accounts_not_pushed", error=str(error))

    @property
    def patience_s(self) -> float:
        """For how long a read is made again where nobody answers: while a cluster chooses leaders."""
        return _CLUSTER_PATIENCE_S if self.servers > 1 else 0.0

    async def _open_registry(self) -> Client | None:
        """Open hub.db, and refuse one that was lost: nothing was told anybody yet.

        Returns the connection in account HUB; None where the server does not take the login yet.

        Raises:
            LostRegistryError: it knows nobody where there were devices. One that this made is gone again.
            HubError: it is not usable, or the server does not answer.
        """
        path = self.directory / "hub.db"
        is_new = not path.exists()
        journal = self.leadership.journal if self.leadership is not None else None
        self.registry = await Registry.open(path, journal)
        self._open_db.push_async_callback(self.registry.close)
        self._open.push_async_callback(self._open_db.aclose)
        client = None
        try:
            # A server that has lost its accounts refuses; they are pushed before it is tried again.
            with contextlib.suppress(HubError):
                client = await self._logged_in()
            await self._require_registry(client)
        except LostRegistryError:
            if is_new:
                await self._open_db.aclose()
                for suffix in ("", "-wal", "-shm"):
                    path.with_name(path.name + suffix).unlink(missing_ok=True)
            raise
        return client

    async def _logged_in(self) -> Client:
        client = await connect(self.config.nats.url, self.config.nats.control)
        self._open.push_async_callback(client.close)
        return client

    async def _require_registry(self, client: Client | None) -> None:
        if self.leadership is not None and await read_devices(self.registry):
            return  # it came by the journal, and takeovers wait for no server that is away
        there = await at_servers(self.system, self.keys, self.servers)
        api = self._api(client) if client is not None else None
        await require_registry(self.directory, self.keys, self.registry, api, there.revoked)

    def _api(self, client: Client) -> JetStreamApi:
        if self.servers == 1:
            return JetStreamApi(client)
        # A cluster that has no leader does not answer, and has one again within seconds.
        return JetStreamApi(client, timeout_s=_CLUSTER_REQUEST_S, patience_s=_CLUSTER_PATIENCE_S)

    def _add_later_logins(self) -> None:
        try:
            now_s = self.clock.now_ns() // 1_000_000_000
            for user in add_later_logins(self.directory, self.keys, now_s=now_s):
                log.info("login_made", file=creds_file(user))
        except OSError as error:
            # A hub directory that is read only serves vehicles all the same.
            log.warning("login_not_made", error=str(error))

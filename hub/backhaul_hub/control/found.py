"""A control plane's finds when it starts: hub.db, and a login to the server that may not be there yet."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from backhaul_hub.backup.carry_revocations import at_servers
from backhaul_hub.backup.lost_registry import require_registry
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import HubError, LostRegistryError
from backhaul_hub.nats.connection import connect
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.servers import urls

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.client import Client

    from backhaul_hub.access.keys import HubKeys
    from backhaul_hub.config import HubConfig


class Found:
    """An open hub.db that is not a lost one. Make it with `open`; `close` closes both."""

    def __init__(
        self,
        directory: Path,
        config: HubConfig,
        keys: HubKeys,
        system: Client,
        registry: Registry,
    ) -> None:
        self.registry = registry
        self._directory = directory
        self._config = config
        self._keys = keys
        self._system = system
        self._client: Client | None = None

    @classmethod
    async def open(cls, directory: Path, config: HubConfig, keys: HubKeys, system: Client) -> Found:
        """Open hub.db, and refuse one that was lost: nothing was told anybody yet.

        Raises:
            LostRegistryError: it knows nobody where there were devices. One that this made is gone again.
            HubError: it is not usable, or the server does not answer.
        """
        path = directory / "hub.db"
        is_new = not path.exists()
        found = cls(directory, config, keys, system, await Registry.open(path))
        try:
            # A server that has lost its accounts refuses; they are pushed before it is tried again.
            with contextlib.suppress(HubError):
                found._client = await connect(config.nats.url, config.nats.control)
            await found._require()
        except BaseException as error:
            await found.close()
            if is_new and isinstance(error, LostRegistryError):
                for suffix in ("", "-wal", "-shm"):
                    path.with_name(path.name + suffix).unlink(missing_ok=True)
            raise
        return found

    async def connected(self) -> Client:
        """Return the connection in account HUB, now that the server has the accounts.

        Raises:
            LostRegistryError: the server's streams say, which could not be asked before.
            HubError: the server does not take the login.
        """
        if self._client is None:
            self._client = await connect(self._config.nats.url, self._config.nats.control)
            await self._require()
        return self._client

    async def close(self) -> None:
        """Close the connection, then hub.db."""
        if self._client is not None:
            await self._client.close()
        await self.registry.close()

    async def _require(self) -> None:
        there = await at_servers(self._system, self._keys, len(urls(self._config.nats.url)))
        api = JetStreamApi(self._client) if self._client is not None else None
        await require_registry(self._directory, self._keys, self.registry, api, there.revoked)

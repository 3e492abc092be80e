"""Logging in at a hub's server as one of its users, or as a new one."""

from __future__ import annotations

import tomllib
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backhaul_hub.access.keys import read_keys
from backhaul_hub.access.logins import new_login
from backhaul_hub.private_files import write_private
from backhaul_runtime.clock import SystemClock
from tests.support.rig.patient import connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from nats.aio.client import Client

    from backhaul_hub.access.account_names import AccountName

    Runner = Callable[[list[str]], Awaitable[str]]


class HubLogins:
    """A hub's directory and the port of its server."""

    directory: Path
    client_port: int

    def addresses(self) -> list[str]:
        """Return the client addresses of all servers."""
        return [f"nats://127.0.0.1:{self.client_port}"]

    def options(self, user: str = "control") -> dict[str, Any]:
        """Return the arguments for nats-py's `connect`: addresses, and the login of a user of hub.toml."""
        login = tomllib.loads((self.directory / "hub.toml").read_text())["nats"][user]
        creds = self.directory / login["creds"]
        return {"servers": self.addresses(), "user_credentials": str(creds)}

    def environment(self, user: str = "control") -> dict[str, str]:
        """Return what the examples in docs/ log in with."""
        return {
            "HUB_URL": self.addresses()[0],
            "HUB_CREDS": self.options(user)["user_credentials"],
        }

    async def connect(self, user: str = "control", **options: Any) -> Client:
        """Connect to the hub as one of its users; the caller closes."""
        return await connect(**self.options(user), **options)

    @asynccontextmanager
    async def connection_in(self, account: AccountName) -> AsyncIterator[Client]:
        """Connect as a new user of an account, as of UP, where the hub has none; close at the end."""
        now_s = SystemClock().now_ns() // 1_000_000_000
        login = new_login(read_keys(self.directory), "rig", account, now_s=now_s)
        creds = self.directory.parent / f"{self.directory.name}-{account}.creds"
        write_private(creds, login.text())
        client = await connect(self.addresses(), user_credentials=str(creds))
        try:
            yield client
        finally:
            await client.close()

    @asynccontextmanager
    async def connection(self, user: str = "control", **options: Any) -> AsyncIterator[Client]:
        """Connect to the hub as one of its users; close at the end."""
        client = await self.connect(user, **options)
        try:
            yield client
        finally:
            await client.close()

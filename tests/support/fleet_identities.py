"""A hub's server with a fleet of enrolled identities and their links; one of them is revoked."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Self

from backhaul_codec.protocol.credentials import Credentials
from backhaul_hub.access.keys import read_keys
from backhaul_hub.access.logins import vehicle_jwt
from backhaul_hub.access.push import AccountKeeper
from backhaul_hub.db.devices import add_device
from backhaul_hub.db.store import Registry
from backhaul_hub.device import Device
from backhaul_hub.nats.nkey import new_key
from backhaul_runtime.clock import SystemClock
from tests.security.leaf_client import RawLeaf
from tests.support.hub_acts import revoke_key
from tests.support.rig.parts import HubRig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.aio.client import Client

    from backhaul_hub.access.keys import HubKeys

_AT_ONCE = 20


class Fleet:
    """The server of a hub, its keys and hub.db; no control plane.

    `logins` and `links` are by device.
    """

    def __init__(self, rig: HubRig, keys: HubKeys, registry: Registry) -> None:
        self.rig = rig
        self.keys = keys
        self.registry = registry
        self.keeper = AccountKeeper(keys, registry, SystemClock())
        self.devices: dict[str, Device] = {}
        self.logins: dict[str, Credentials] = {}
        self.links: dict[str, RawLeaf] = {}

    @classmethod
    @asynccontextmanager
    async def running(cls, directory: Path) -> AsyncIterator[Self]:
        """Make a hub and start its server; end both, and all links, at the end."""
        async with AsyncExitStack() as stack:
            rig = HubRig(directory / "hub")
            await rig.init()
            stack.push_async_callback(rig.server.stop)
            await rig.server.start()
            await rig.server.wait_listening(rig.client_port)
            registry = await stack.enter_async_context(
                await Registry.open(rig.directory / "hub.db")
            )
            fleet = cls(rig, read_keys(rig.directory), registry)
            stack.push_async_callback(fleet.close)
            yield fleet

    async def enrol(self, name: str, *, nodes: tuple[str, ...] = ()) -> None:
        """Make a device's key, row and JWT, as `add-device` does."""
        key, now_ns = new_key("user"), SystemClock().now_ns()
        device = Device(name, secrets.token_hex(12), key.public, now_ns, nodes)
        await add_device(self.registry, device)
        jwt = vehicle_jwt(self.keys, device, now_s=now_ns // 1_000_000_000)
        self.devices[name] = device
        self.logins[name] = Credentials(key.seed, key.public, jwt)

    async def connect(self, *names: str) -> list[str]:
        """Open the links of these devices (anew), some at once; return those that were refused."""
        turns = asyncio.Semaphore(_AT_ONCE)

        async def one(name: str) -> bool:
            async with turns:
                if former := self.links.get(name):
                    await former.close()
                leaf = self.links[name] = self._leaf(name)
                await leaf.open(wait=False)
                return await leaf.flush()

        came_in = await asyncio.gather(*map(one, names))
        return [name for name, came in zip(names, came_in, strict=True) if not came]

    async def revoke(self, name: str, system: Client) -> float:
        """Revoke a device's key; return after how many seconds its link was cut."""
        link, start_s = self.links[name], asyncio.get_running_loop().time()
        await revoke_key(self.registry, self.keeper, system, self.devices[name].public_key, name)
        async with asyncio.timeout(120):
            await link.closed.wait()
        return link.closed_s - start_s

    async def cut_off(self) -> list[str]:
        """Return the devices whose links do not answer any more."""
        answers = await asyncio.gather(*(link.flush() for link in self.links.values()))
        return [name for name, up in zip(self.links, answers, strict=True) if not up]

    def _leaf(self, name: str) -> RawLeaf:
        """Return a link that does nothing but stay."""
        login = self.logins[name]
        # Nobody else's name: the server cuts an older leaf when one of the same name connects.
        claims = {
            "jwt": login.jwt, "name": secrets.token_hex(8), "domain": name, "headers": True,
            "protocol": 1,
        }  # fmt: skip
        leaf = RawLeaf("127.0.0.1", self.rig.leaf_port, claims)
        leaf.sign = lambda nonce: {"sig": login.sign(nonce)}
        return leaf

    async def restart(self) -> None:
        """Stop the server, and start it again with what it has on its disk."""
        await self.close()
        await self.rig.server.stop()
        await self.rig.server.start()
        await self.rig.server.wait_listening(self.rig.client_port)

    async def close(self) -> None:
        """End all links."""
        await asyncio.gather(*(link.close() for link in self.links.values()))
        self.links.clear()

"""What a command line does to a hub where no control plane runs, without a command line: for tests that need it done.

Each opens hub.db for itself, and takes no lock on it: a test may have it open beside.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from backhaul_hub.access import revocations
from backhaul_hub.access.identity_documents import Documents
from backhaul_hub.access.keys import read_keys
from backhaul_hub.access.push import AccountKeeper
from backhaul_hub.access.signed_log import RevocationLog
from backhaul_hub.config import load
from backhaul_hub.db.store import Registry
from backhaul_hub.enrol import add_device, revoke, rotate, tokens
from backhaul_hub.nats.connection import connect
from backhaul_hub.people import credentials, page_logins
from backhaul_hub.private_files import private_directory, write_private
from backhaul_hub.servers import urls
from backhaul_runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from nats.aio.client import Client

    from backhaul_hub.access.key_rotations import Rotation
    from backhaul_hub.config import HubConfig
    from backhaul_hub.enrol.add_device import AddedDevice, ChangedNodes, DeviceSettings
    from backhaul_hub.enrol.revoke import Revoked
    from backhaul_hub.enrol.tokens import MadeToken
    from backhaul_hub.people.identity import Person
    from backhaul_runtime.clock import Clock


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[Registry]:
    async with await Registry.open(directory / "hub.db") as registry:
        yield registry


def documents_of(directory: Path, config: HubConfig) -> Documents:
    return Documents(directory, config, read_keys(directory))


async def create_device(
    directory: Path, config: HubConfig, clock: Clock, device: str, settings: DeviceSettings
) -> AddedDevice:
    documents = documents_of(directory, config)
    async with opened(directory) as registry:
        return await add_device.create_device(registry, documents, clock, device, settings)


async def change_nodes(
    directory: Path, clock: Clock, device: str, nodes: Iterable[str]
) -> ChangedNodes:
    documents = documents_of(directory, load(directory))
    async with opened(directory) as registry:
        return await add_device.change_nodes(registry, documents, clock, device, nodes)


async def make_token(
    directory: Path,
    config: HubConfig,
    clock: Clock,
    device: str,
    settings: DeviceSettings,
    expires_s: float,
) -> MadeToken:
    documents, keys = documents_of(directory, config), read_keys(directory)
    async with opened(directory) as registry:
        return await tokens.make_token(
            registry, documents, keys, clock, device, settings, expires_s
        )


async def revoke_device(directory: Path, config: HubConfig, clock: Clock, device: str) -> Revoked:
    documents = documents_of(directory, config)
    async with opened(directory) as registry:
        return await revoke.revoke_device(registry, documents, clock, device)


async def leave_for_servers(directory: Path, config: HubConfig, clock: Clock) -> bool:
    async with opened(directory) as registry:
        return await revoke.leave_for_servers(directory, registry, config, clock)


async def begin_rotation(
    directory: Path, clock: Clock, device: str, *, again: bool = False
) -> tuple[Rotation, bool]:
    async with opened(directory) as registry:
        return await rotate.begin_rotation(registry, clock, device, again=again)


async def add_person(directory: Path, clock: Clock, person: Person, target: Path) -> None:
    async with opened(directory) as registry:
        login = await credentials.add_person(registry, read_keys(directory), clock, person)
    private_directory(target.parent)
    write_private(target, login.text())


async def remove_person(directory: Path, clock: Clock, name: str) -> None:
    async with opened(directory) as registry:
        await credentials.remove_person(registry, clock, name)


async def make_link(directory: Path, clock: Clock, name: str, for_s: float) -> str:
    async with opened(directory) as registry:
        return await page_logins.make_link(registry, clock, name, for_s)


async def push_accounts(directory: Path) -> None:
    """Have the servers know hub.db. Raises: HubError: not all do."""
    config, keys = load(directory), read_keys(directory)
    log = RevocationLog(directory, keys.operator_signing)
    system = await connect(config.nats.url, config.nats.system)
    try:
        async with opened(directory) as registry:
            servers = len(urls(config.nats.url))
            keeper = AccountKeeper(keys, registry, SystemClock(), servers=servers, log=log)
            await keeper.push(system)
    finally:
        await system.close()


async def revoke_key(
    registry: Registry, keeper: AccountKeeper, system: Client, public_key: str, name: str
) -> None:
    """Revoke a vehicle's key for ever, as an act does, and have the servers told: its connections are cut at once."""
    now_ns = SystemClock().now_ns()
    row = revocations.Revocation(public_key, "FLEET", name, now_ns)
    await registry.write([revocations.revoke(row)])
    await keeper.push(system)

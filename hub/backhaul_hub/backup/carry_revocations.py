"""Revocations carried over when an older hub.db comes back: `restore` lets no revoked key in again.

What was revoked since a backup stands in the accounts that the servers have, and in the hub.db in whose
place it comes, where there is one. Which tokens were used since, nobody knows for certain: those that
were open are void.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from nats.aio.client import Client

from backhaul_hub.access.account_names import ACCOUNTS, AccountName
from backhaul_hub.access.generations import generations, of_jwt, taken_over
from backhaul_hub.access.key_rotations import Rotation, drop, rotations
from backhaul_hub.access.keys import HubKeys
from backhaul_hub.access.push import jwts_there, revoked_for_ever
from backhaul_hub.access.revocations import Revocation, revocations, revoke
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.devices import read_devices
from backhaul_hub.db.store import Registry
from backhaul_hub.device import Device
from backhaul_hub.enrol import rows as enrolment_rows
from backhaul_hub.errors import BackupError, RegistryError
from backhaul_hub.people import page_rows
from backhaul_hub.people.page_rows import PageSession
from backhaul_hub.people.rows import Known, insertion, known_people, removal

Revoked: TypeAlias = "Mapping[AccountName, set[str]]"
"""Public keys, by account."""
_NONE: Mapping[AccountName, int] = {}


class CarriedOver(NamedTuple):
    """The revocations that a restored hub.db was told, of the time since its backup."""

    keys: int = 0
    """So many were revoked since."""
    devices: tuple[str, ...] = ()
    """Shut out by that: revoked, or enrolled anew with a key that is not known any more."""
    people: tuple[str, ...] = ()
    """Whose credentials were withdrawn since."""
    tokens: tuple[str, ...] = ()
    """Devices whose enrolment token is void by the restore."""


class AtServers(NamedTuple):
    """The servers' knowledge that an older hub.db lacks."""

    revoked: Mapping[AccountName, set[str]] = {}
    """Who is shut out for ever."""
    generations: Mapping[AccountName, int] = {}
    """Of each account, the newest."""


async def at_servers(system: Client, keys: HubKeys, servers: int) -> AtServers:
    """Return the servers' knowledge of accounts.

    Raises:
        HubError: none answered.
    """
    found = {name: await jwts_there(system, keys, name, servers) for name in ACCOUNTS}
    return AtServers(
        {name: _in(jwts) for name, jwts in found.items()},
        {name: max(of_jwt(jwt).number for jwt in jwts) for name, jwts in found.items()},
    )


def _in(jwts: Iterable[str]) -> set[str]:
    return set().union(*map(revoked_for_ever, jwts))


async def carry_over(
    registry: Registry,
    revoked: Revoked,
    former: Path,
    now_ns: int,
    held: Mapping[AccountName, int] = _NONE,
) -> CarriedOver:
    """Tell a restored hub.db, whole or not at all, the keys that were shut out since.

    It is then no older than the servers: what it has accounts say is their next generation.

    Args:
        registry: it.
        revoked: who is, as servers have it.
        former: the hub.db in whose place it came; there need not be one.
        now_ns: since the Unix epoch.
        held: the generation of each account, as servers have it.

    Raises:
        BackupError: the former one cannot be read.
        RegistryError: hub.db refused; nothing is changed.
    """
    before = await _read(former)

    async def decide() -> tuple[Sequence[RowChange], CarriedOver]:
        told = _told(before.revocations, revoked, now_ns)
        changes, carried = await _decide(registry, told, before, now_ns)
        own = await generations(registry)
        return [*changes, taken_over(own, before.generations, held)], carried

    return await registry.write_decided(decide)


class _Former(NamedTuple):
    """The contents of the hub.db that another replaced."""

    revocations: Sequence[Revocation] = ()
    devices: Mapping[str, Device] = {}
    people: Mapping[str, Known] = {}
    generations: Mapping[AccountName, int] = {}
    sessions: Sequence[PageSession] = ()


async def _read(path: Path) -> _Former:
    if not await asyncio.to_thread(path.exists):
        return _Former()
    try:
        async with await Registry.open_existing(path) as registry:
            return _Former(
                await revocations(registry),
                await read_devices(registry),
                await known_people(registry),
                {name: each.number for name, each in (await generations(registry)).items()},
                await page_rows.sessions(registry),
            )
    except RegistryError as error:
        raise BackupError(
            f"who was shut out since the backup cannot be read: {error.message}",
            hint=f"move {path.name} away; what it alone knows is to be revoked again then",
        ) from error


def _told(rows: Iterable[Revocation], revoked: Revoked, now_ns: int) -> dict[str, Revocation]:
    """Return revocations by key: a former hub.db names their devices, servers do not."""
    at_servers = (
        Revocation(key, account, "", now_ns) for account, keys in revoked.items() for key in keys
    )
    return {each.public_key: each for each in (*at_servers, *rows)}


async def _decide(
    registry: Registry, told: dict[str, Revocation], former: _Former, now_ns: int
) -> tuple[list[RowChange], CarriedOver]:
    known = {each.public_key for each in await revocations(registry)}
    new = {key: each for key, each in told.items() if key not in known}
    void = known | new.keys()
    changes = [revoke(each) for each in new.values()]
    under_way = await rotations(registry)
    shut_out = []
    for device in (await read_devices(registry)).values():
        if device.public_key not in new:
            continue
        key = _successor(device, former.devices.get(device.id), under_way.get(device.id))
        if key and key not in void:
            changes += [_rotated(device.id, key), drop(device.id)]
        else:
            shut_out.append(device.id)
    people = await known_people(registry)
    gone = [name for name, each in people.items() if each.public_key in new]
    changes += [removal(name) for name in gone]
    # Whose credentials let them in must be in the list, or nobody could withdraw them.
    changes += [
        insertion(each)
        for name, each in former.people.items()
        if (name not in people or name in gone) and each.public_key not in void
    ]
    tokens = await enrolment_rows.open_tokens(registry, now_ns)
    for device_id in tokens:
        changes += enrolment_rows.void_open(device_id, now_ns, enrolment_rows.RESTORED)
    # Whether a link was used since, nobody knows; who is logged in by one is to be found by `user rm`.
    changes += [page_rows.end_links(), page_rows.keep_sessions(former.sessions)]
    return changes, CarriedOver(len(new), tuple(shut_out), tuple(gone), tuple(tokens))


def _successor(device: Device, former: Device | None, rotation: Rotation | None) -> str:
    """Return the key that a device has by now, if its own was revoked for that; else ""."""
    if former is not None and former.token == device.token:
        return former.public_key
    return rotation.public_key if rotation is not None else ""


def _rotated(device: str, public_key: str) -> RowChange:
    return RowChange("UPDATE device SET public_key = ? WHERE id = ?", [(public_key, device)])

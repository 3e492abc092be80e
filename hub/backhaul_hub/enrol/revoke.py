"""Revoking a device: the work behind `backhaul-hub revoke`.

What stands in hub.db is what holds: every account JWT is built from it, so whatever is pushed later, by
whomever, leaves the key out. Its key is never given out again; what came of the device stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from backhaul_hub.access.account_files import jwts_in_files, write_accounts
from backhaul_hub.access.identity_documents import Documents
from backhaul_hub.access.key_rotations import drop, rotations
from backhaul_hub.access.keys import read_keys
from backhaul_hub.access.push import AccountKeeper
from backhaul_hub.access.revocations import Revocation, revoke
from backhaul_hub.access.signed_log import RevocationLog
from backhaul_hub.config import HubConfig
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.devices import read_devices
from backhaul_hub.db.store import Registry
from backhaul_hub.enrol import rows as enrolment_rows
from backhaul_hub.errors import ConfigError, RegistryError
from backhaul_hub.nats.connection import any_listens
from backhaul_runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class Revoked:
    """The keys and tokens that `revoke` has taken back."""

    device: str
    public_key: str
    """Empty: the device was never enrolled, only tokens were made for it."""
    tokens: int
    """So many tokens that could still have been used."""
    before: bool
    """Whether its key was revoked already."""


async def revoke_device(
    registry: Registry, documents: Documents, clock: Clock, device_id: str
) -> Revoked:
    """Revoke a device's key and its tokens, in hub.db.

    The servers have to be told, which is the caller's to do: that cuts the link. Where none runs, call
    `leave_for_servers`.

    Raises:
        RegistryError: there is neither such a device nor a token for one.
        ConfigError: its document cannot be removed; it is revoked.
    """
    now_ns = clock.now_ns()
    # In one transaction: it may just be enrolled, or a new key be signed for it.
    revoked = await registry.write_decided(lambda: _revoked(registry, device_id, now_ns))
    try:
        documents.remove(device_id)
    except OSError as error:
        raise ConfigError(f"{error.filename or device_id}: {error.strerror}") from error
    return revoked


async def _revoked(
    registry: Registry, device_id: str, now_ns: int
) -> tuple[Sequence[RowChange], Revoked]:
    """Return the statements that take back all of a device's keys and tokens, and the list of these."""
    known = (await read_devices(registry)).get(device_id)
    tokens = await enrolment_rows.of_device(registry, device_id)
    usable = sum(each.state(now_ns) == "open" for each in tokens)
    if known is None and not usable:
        raise RegistryError(f"there is no device {device_id}, and no token for one")
    rotation = (await rotations(registry)).get(device_id)
    # A key that was signed in a rotation logs in as well, whether it was seen to or not.
    spent = {known.public_key if known else "", rotation.public_key if rotation else ""}
    changes = [*enrolment_rows.void_all(device_id, now_ns, "revoked"), drop(device_id)]
    changes += [revoke(Revocation(key, "FLEET", device_id, now_ns)) for key in sorted(spent) if key]
    return changes, Revoked(
        device_id,
        known.public_key if known else "",
        usable,
        before=bool(known and known.revoked_ns),
    )


async def leave_for_servers(
    directory: Path, registry: Registry, config: HubConfig, clock: Clock
) -> bool:
    """Write accounts where servers read them when they start; return False where one runs already.

    A server that runs must be told: it would not look, and what asks it would be shown the file.

    Raises:
        ConfigError: a key or file is missing, or cannot be written.
    """
    if await any_listens(config.nats.url):
        return False
    keys = read_keys(directory)
    revoked = RevocationLog(directory, keys.operator_signing)
    keeper = AccountKeeper(keys, registry, clock, log=revoked)
    settled = await keeper.settle(jwts_in_files(directory, keys))
    try:
        write_accounts(directory, keys, settled.jwts)
    except OSError as error:
        raise ConfigError(f"{error.filename or directory}: {error.strerror}") from error
    return True

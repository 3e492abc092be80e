"""Beginning a rotation: the work behind `backhaul-hub rotate`. The control plane does the rest."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from backhaul_hub.access.key_rotations import Rotation, begin, rotations
from backhaul_hub.access.revocations import Revocation, revoke
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.devices import read_devices
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import RegistryError
from backhaul_runtime.clock import Clock


async def begin_rotation(
    registry: Registry, clock: Clock, device_id: str, *, again: bool = False
) -> tuple[Rotation, bool]:
    """Ask a device for another key; return the rotation, and whether it has begun just now.

    One that is under way goes on, unless ``again``: then a new one begins, and a key that the old one
    had signed and nobody has logged in with is revoked.

    Raises:
        RegistryError: there is no such device, or it is revoked.
    """
    now_ns = clock.now_ns()
    # In one transaction: a login with the last key may just be noted.
    return await registry.write_decided(lambda: _begun(registry, device_id, now_ns, again=again))


async def _begun(
    registry: Registry, device_id: str, now_ns: int, *, again: bool
) -> tuple[Sequence[RowChange], tuple[Rotation, bool]]:
    """Return the statements that begin a rotation, and the effect of `begin_rotation`."""
    known = (await read_devices(registry)).get(device_id)
    if known is None or known.revoked_ns:
        what = "is revoked" if known else "does not exist"
        raise RegistryError(f"device {device_id} {what}", hint=f"backhaul-hub enrol {device_id}")
    last = (await rotations(registry)).get(device_id)
    if last is not None and last.under_way and not again:
        return [], (last, False)
    rotation = Rotation(
        device_id, secrets.token_hex(12), "asked", now_ns,
        old_key=known.public_key, changed_ns=now_ns,
    )  # fmt: skip
    changes = [begin(rotation)]
    if last is not None and last.public_key not in ("", known.public_key):
        changes.append(revoke(Revocation(last.public_key, "FLEET", device_id, now_ns)))
    return changes, (rotation, True)

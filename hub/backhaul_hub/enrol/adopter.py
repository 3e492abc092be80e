"""Taking a device's key from its login, where hub.db does not have it: it was rebuilt, or is an older copy.

A server lets in what this hub has signed and nobody has revoked. So who logs in says truly by which key and
token it is known. A device that is revoked is none of it: its operator's word counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog
from nats.errors import Error as NatsError

from backhaul_hub.access.key_rotations import Rotation
from backhaul_hub.access.revocations import UNKNOWN_KEY, Revocation, revocations, revoke
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.devices import enrolled, enrolled_anew, read_devices
from backhaul_hub.db.store import Registry
from backhaul_hub.device import Device
from backhaul_hub.errors import HubError
from backhaul_hub.lane_names import nodes_of_lanes
from backhaul_runtime.clock import Clock
from backhaul_runtime.trouble import Trouble

log = structlog.get_logger(__name__)
_RETRY_S = 1.0


@dataclass(eq=False)
class Adopter:
    """Hears logins, and has hub.db know the keys that it does not.

    Args:
        devices: as hub.db was read last. Most logins are of these keys, and after a server has started of a
            whole fleet: hub.db is not asked for them.
        rotations: of all devices: a key that one has made is its own matter.
        learn: has servers and control plane take note of what changed in hub.db.
    """

    _registry: Registry
    _clock: Clock
    _devices: Callable[[], Mapping[str, Device]]
    _rotations: Callable[[], Mapping[str, Rotation]]
    _learn: Callable[[], Awaitable[None]]

    def __post_init__(self) -> None:
        self._logins: dict[str, Device] = {}
        self._heard = asyncio.Event()

    def heard(self, login: Mapping[str, Any]) -> None:
        """Take in the claims of a vehicle's login, as the hub has signed it."""
        tags = [tag.partition(":") for tag in (login.get("nats") or {}).get("tags") or []]
        token = next((value for name, _, value in tags if name == "tok"), "")
        if not token:
            return
        nodes = nodes_of_lanes(value for name, _, value in tags if name == "lane")
        device = Device(login["name"], token, login["sub"], 0, tuple(sorted(nodes)))
        known = self._devices().get(device.id)
        if known is not None and known.public_key == device.public_key:
            return
        self._logins[device.id] = device
        self._heard.set()

    async def run(self) -> None:
        """Act on logins, for ever."""
        trouble, untold = (
            Trouble(log, "login_not_looked_at", HubError, NatsError, wait_s=_RETRY_S),
            False,
        )
        while True:
            await self._heard.wait()
            self._heard.clear()
            async with trouble:
                untold |= await self.act()
                if untold:
                    await self._learn()
                untold = False
            if trouble.now:
                self._heard.set()

    async def act(self) -> bool:
        """Act on the claims heard; return whether hub.db changed. Raises: RegistryError."""
        changed = False
        for device, login in list(self._logins.items()):
            words = await self._registry.write_decided(lambda login=login: self._decide(login))  # type: ignore[misc]
            if self._logins.get(device) is login:
                del self._logins[device]
            if words:
                log.warning(words, device=device, public_key=login.public_key)
            changed |= bool(words)
        return changed

    async def _decide(self, login: Device) -> tuple[Sequence[RowChange], str]:
        """Return the statements for hub.db about a login, and the name of the change."""
        known = (await read_devices(self._registry)).get(login.id)
        if known is not None and known.public_key == login.public_key:
            return [], ""
        if login.public_key in {row.public_key for row in await revocations(self._registry)}:
            return [], ""  # let in for a moment by a server that was just started
        now_ns = self._clock.now_ns()
        if known is None:
            return enrolled(replace(login, added_ns=now_ns)), "device_adopted"
        unknown = known.public_key.startswith(UNKNOWN_KEY)
        if known.revoked_ns:
            # Revoked before anybody knew with which key it would come.
            row = Revocation(login.public_key, "FLEET", login.id, now_ns)
            return ([revoke(row)], "late_key_revoked") if unknown else ([], "")
        rotation = self._rotations().get(login.id)
        if rotation is not None and rotation.under_way:
            return [], ""
        if not unknown:
            login = replace(login, nodes=known.nodes, leaving=known.leaving)
        return enrolled_anew(login), "device_adopted"

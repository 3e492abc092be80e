"""Carrying rotations on: tells vehicles the hub's wishes, hears them, and ends finished ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import structlog
from nats.errors import Error as NatsError

from backhaul_codec.protocol.rotation import SUBJECT, write_wish
from backhaul_codec.protocol.words import KeyWord
from backhaul_hub.access.identity_documents import Documents
from backhaul_hub.access.key_rotations import Rotation, heard, logged_in, put, put_said, rotations
from backhaul_hub.access.keys import HubKeys
from backhaul_hub.access.logins import vehicle_jwt
from backhaul_hub.access.revocations import Revocation, revocations, revoke
from backhaul_hub.continuity.examine import Examined
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.devices import read_devices
from backhaul_hub.db.store import Registry
from backhaul_hub.device import Device
from backhaul_hub.errors import ConfigError, HubError
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_runtime.clock import Clock
from backhaul_runtime.trouble import Trouble

log = structlog.get_logger(__name__)
_RETRY_S = 1.0

_NS_PER_S = 1_000_000_000


@dataclass(eq=False)
class RotationKeeper:
    """Takes part in the reading of UP, and acts on a vehicle's word once that is stored.

    Args:
        keys: sign logins for new keys.
        documents: those of devices, which name their keys.
        clock: for the times of changes.
        devices: as hub.db has them now.
        learn: has servers and control plane take note of a device whose key is another.
    """

    _keys: HubKeys
    _documents: Documents
    _clock: Clock
    _devices: Callable[[], Mapping[str, Device]]
    _learn: Callable[[], Awaitable[None]]

    def __post_init__(self) -> None:
        self.rotations: dict[str, Rotation] = {}
        """The newest of each device."""
        self._spent: set[str] = set()
        self._logins: dict[str, str] = {}
        self._changed: dict[str, Rotation] = {}
        self._due = asyncio.Event()
        self._to_learn = False

    async def look(self, registry: Registry) -> None:
        """Learn the rotations of hub.db: at the start, and after each act on them."""
        rows = await rotations(registry)
        for device in self.rotations.keys() - rows.keys():
            self.forget(device)
        for device, row in rows.items():
            known = self.rotations.get(device)
            # Of the same one memory is ahead: what it heard may not be stored yet.
            if known is None or known.id != row.id:
                self.rotations[device] = row
        self._spent = {row.public_key for row in await revocations(registry)}
        self._spent |= {device.public_key for device in self._devices().values()}
        self._due.set()

    def forget(self, device: str) -> None:
        """Take in that a device was revoked."""
        self.rotations.pop(device, None)

    def down_was_made_anew(self) -> None:
        """Say again the wishes that DOWN has lost."""
        for device, each in self.rotations.items():
            if each.under_way:
                self.rotations[device] = replace(each, said="")
        self._due.set()

    def connected(self, device: str, public_key: str) -> None:
        """Take in with which key a device has logged in."""
        rotation = self.rotations.get(device)
        if rotation is None:
            return
        if rotation.public_key == public_key:
            self._logins[device] = public_key
        elif rotation.under_way and rotation.state != "written":
            # Its source may have passed over the wish when the link came up before (ADR 1).
            self.rotations[device] = replace(rotation, said="")
        self._due.set()

    def on_message(self, said: Examined, is_new: bool) -> None:
        """Take in a vehicle's word on its key."""
        if not isinstance(said.word, KeyWord):
            return
        device = said.key.device
        after = heard(self.rotations.get(device), said.word, self._spent, self._clock.now_ns())
        if after is not None:
            self.rotations[device] = self._changed[device] = after

    def take_changes(self) -> Sequence[RowChange]:
        """Return the rows that are to be stored."""
        changed, self._changed = self._changed, {}
        return [put(each) for each in changed.values()]

    def stored(self) -> None:
        """Take in that they are."""
        self._due.set()

    async def run(
        self, api: JetStreamApi, registry: Registry, cut: Callable[[str], Awaitable[None]]
    ) -> None:
        """Act on each rotation that is due, for ever; a failed step is tried again.

        ``cut``: cuts a device's link, so that its leaf dials again.
        """
        await self._have_dialled(cut)
        trouble = Trouble(log, "rotation_waits", HubError, NatsError, OSError, wait_s=_RETRY_S)
        while True:
            await self._due.wait()
            self._due.clear()
            async with trouble:
                await self._end(registry)
                for each in list(self.rotations.values()):
                    if each.said != each.state and each.device not in self._changed:
                        await self._act(each, api, registry, cut)
            if trouble.now:
                self._due.set()

    async def _have_dialled(self, cut: Callable[[str], Awaitable[None]]) -> None:
        """Cut the leafs that may have logged in with their new keys while nobody looked."""
        for each in list(self.rotations.values()):  # a command may end or begin one meanwhile
            if each.under_way and each.public_key:
                try:
                    await cut(each.device)
                except (HubError, NatsError) as error:
                    log.warning("leaf_not_cut", device=each.device, error=str(error))

    async def _act(
        self,
        rotation: Rotation,
        api: JetStreamApi,
        registry: Registry,
        cut: Callable[[str], Awaitable[None]],
    ) -> None:
        device = self._devices().get(rotation.device)
        if device is None or device.revoked_ns:
            self.forget(rotation.device)
            return
        if not await self._stands(rotation, registry):
            return
        log.info("rotation", device=device.id, rotation=rotation.id, state=rotation.state,
                 public_key=rotation.public_key, why=rotation.why)  # fmt: skip
        if rotation.state == "written":
            await cut(device.id)
        else:
            jwt = ""
            if rotation.public_key:
                new = replace(device, public_key=rotation.public_key)
                jwt = vehicle_jwt(self._keys, new, now_s=self._clock.now_ns() // _NS_PER_S)
            await api.publish(f"in.{device.id}.{SUBJECT}", write_wish(rotation.wish(jwt)))
        done = replace(rotation, said=rotation.state)
        await registry.write([put_said(done)])
        # Another object, however alike: heard more meanwhile, or to be said again. That has its own turn.
        if self.rotations.get(device.id) is rotation:
            self.rotations[device.id] = done

    async def _stands(self, rotation: Rotation, registry: Registry) -> bool:
        """Tell whether a rotation is in hub.db as it is here.

        An act may have revoked the device, or begun anew, and we have not been told yet: a
        login that is signed then is for a key that nobody would ever revoke. Once the key is in hub.db
        both do.
        """

        async def found() -> tuple[Sequence[RowChange], Rotation | None]:
            return [], (await rotations(registry)).get(rotation.device)

        row = await registry.write_decided(found)
        if row is None:
            self.forget(rotation.device)
        elif row.id != rotation.id:
            self.rotations[rotation.device] = row
            self._due.set()
        else:  # else it is being stored, and we hear of that
            return (row.state, row.public_key) == (rotation.state, rotation.public_key)
        return False

    async def _end(self, registry: Registry) -> None:
        """Revoke the old keys of those whose leafs have logged in with their new ones."""
        while self._logins:
            device_id, public_key = next(iter(self._logins.items()))
            done = logged_in(self.rotations.get(device_id), public_key, self._clock.now_ns())
            if done is not None and await registry.write_decided(
                partial(self._ended, registry, done)
            ):
                now = self.rotations.get(device_id)
                # What was heard while it was stored is of before; what was begun meanwhile is not.
                if now is not None and now.id == done.id:
                    self.rotations[device_id] = done
                self._to_learn = True
            if self._to_learn:
                await self._learn()
                self._to_learn = False
            self._logins.pop(device_id, None)

    async def _ended(self, registry: Registry, done: Rotation) -> tuple[Sequence[RowChange], bool]:
        """Return the statements that end a rotation, and whether hub.db still has it.

        An act may have begun anew, or given the device other nodes, and we have not been told yet.
        """
        row = (await rotations(registry)).get(done.device)
        device = (await read_devices(registry)).get(done.device)
        if row is None or row.id != done.id or device is None or device.revoked_ns:
            return [], False
        new = replace(device, public_key=done.public_key)
        self._renew_document(new, done.changed_ns // _NS_PER_S)
        return [*_changes_hands(device, done.public_key, done.changed_ns), put(done)], True

    def _renew_document(self, device: Device, now_s: int) -> None:
        """Write a device's document anew; where it cannot be, its next reader does."""
        try:
            self._documents.write(self._documents.renew(device, now_s=now_s))
        except (ConfigError, OSError) as error:
            log.warning("document_not_written", device=device.id, error=str(error))


def _changes_hands(device: Device, public_key: str, now_ns: int) -> list[RowChange]:
    """Return the statements that give a device another key and revoke the one it had."""
    if device.public_key == public_key:
        return []
    row = (public_key, device.id, device.public_key)
    return [
        RowChange("UPDATE device SET public_key = ? WHERE id = ? AND public_key = ?", [row]),
        revoke(Revocation(device.public_key, "FLEET", device.id, now_ns)),
    ]

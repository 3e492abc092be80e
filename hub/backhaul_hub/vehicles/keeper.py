"""The shell around `core.Vehicles`: hears, knows where a leaf is, and stores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import structlog

from backhaul_hub import questions
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.db.store import Registry
from backhaul_hub.device import DeviceLink
from backhaul_hub.errors import HubError, RegistryError
from backhaul_hub.vehicles.core import Vehicles, restored
from backhaul_hub.vehicles.identities import LASTS_NS
from backhaul_hub.vehicles.turns import Turns
from backhaul_runtime.clock import Clock

STORE_S = 5.0
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class VehicleKeeper:
    """Lives as long as the control plane.

    Args:
        continuity: knows which lanes have forked.
        token_of: returns a device's token, None for a device that may not connect.
    """

    vehicles: Vehicles
    _registry: Registry
    _clock: Clock
    _links: Mapping[str, DeviceLink]
    _continuity: Continuity
    _token_of: Callable[[str], str | None] = lambda _: None

    def __post_init__(self) -> None:
        self._turns = Turns()

    @classmethod
    async def open(
        cls,
        registry: Registry,
        clock: Clock,
        links: Mapping[str, DeviceLink],
        continuity: Continuity,
        token_of: Callable[[str], str | None] = lambda _: None,
    ) -> Self:
        """Return a keeper with the stored rows.

        Raises:
            RegistryError: the database refused.
        """
        return cls(await restored(registry), registry, clock, links, continuity, token_of)

    def hear(self, device: str, report: bytes) -> float:
        """Take in a question of a device's agent, and its words on itself with it, if any.

        Returns for how many seconds it is to stay away, because another machine with its identity is online.
        """
        link = self._links.get(device)
        address, token = link.address if link else "", self._token_of(device)
        self.vehicles.hear(device, report, address, self._clock.now_ns(), token)
        now = self.vehicles.identities.of(device).now
        if not report or now is None:
            return 0.0
        return self._turns.hear(device, now.key, self._clock.monotonic_s())

    async def one_machine(self, question: questions.OneDevice) -> dict[str, Any]:
        """Take in an operator's word that the machine heard last is a device's only one, and name it.

        While two were heard, neither may say of what its ledger does not know that it is lost: the other one
        may have it (`Identities.answerer`). Only people know that the other one is gone for good.
        Stored when this returns, unless hub.db refuses.

        Raises:
            HubError: no machine of the device was ever heard.
        """
        device = question.device
        machine = self.vehicles.identities.settle(device, self._clock.now_ns())
        await self.store()
        if machine is None:
            raise HubError(
                f"no machine of {device} was ever heard",
                hint="backhaul-hub devices says which devices there are, and when they were seen",
            )
        return {"device": device, "machine": machine.machine, "address": machine.address}

    async def run(self) -> None:
        """Look for forks and store the news each `STORE_S` (event loop's clock), for ever, and at the end."""
        try:
            while True:
                await asyncio.sleep(STORE_S)
                self.note_forks()
                await self.store()
        finally:
            await self.store()

    def note_forks(self) -> None:
        """Take in where two machines have written in one epoch; of each device the newest."""
        newest: dict[str, tuple[int, LaneKey]] = {}
        oldest_ns = self._clock.now_ns() - LASTS_NS
        for key in self._continuity.forks:
            state = self._continuity.lanes.get(key)
            if state is not None and state.last_seen_ns > oldest_ns:
                found = state.last_seen_ns, key
                newest[key.device] = max(newest.get(key.device, found), found)
        for device, (last_ns, key) in newest.items():
            since = self._continuity.lanes[key].chain.forked_from
            why = f"both wrote in lane {key.lane}, epoch {key.epoch}, from seq {since} on"
            self.vehicles.identities.forked(device, why, last_ns)

    async def store(self) -> None:
        """Store the news; where hub.db refuses, the next time."""
        changes = self.vehicles.take_changes()
        if not changes:
            return
        try:
            await self._registry.write(changes)
        except RegistryError as error:
            log.warning("vehicles_not_stored", error=str(error))
            self.vehicles.identities.changed |= {row[0] for row in changes[0].rows}

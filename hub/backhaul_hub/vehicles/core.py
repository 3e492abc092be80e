"""Vehicles' words on themselves beside their lanes, and when they were heard last. Pure.

It comes with questions for the time (links/clock_service.py) and is kept in hub.db: the machines of an identity for
`vehicles/identities.py`, the newest report for operators.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec
import structlog

from backhaul_codec.protocol.vehicle_report import VehicleReport, read_report
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.store import Registry
from backhaul_hub.vehicles.identities import Identities, Identity

log = structlog.get_logger(__name__)

_PUT = "INSERT OR REPLACE INTO vehicle VALUES (?, ?, ?, ?)"


class Told(NamedTuple):
    """The newest report of a vehicle, and when it came: ns since 1970."""

    report: VehicleReport
    told_ns: int


class Vehicles:
    """Takes in vehicles' words on themselves."""

    def __init__(self) -> None:
        self.identities = Identities()
        self.told: dict[str, Told] = {}
        """By device; of those that ever said anything."""
        self.heard_ns: dict[str, int] = {}
        """By device: when its agent was heard last; not stored."""
        self.unreadable = 0
        self._tokens: dict[str, str | None] = {}

    def hear(
        self, device: str, report: bytes, address: str, now_ns: int, token: str | None = None
    ) -> None:
        """Take in that the agent of a device has spoken, and its words on itself, if there are any.

        `address`: that of its leaf. `token`: the device's now; another one means that it was enrolled anew.
        """
        self.heard_ns[device] = now_ns
        if not report:
            return
        try:
            said = read_report(report)
        except ValueError as error:
            self.unreadable += 1
            log.warning("report_of_a_vehicle_unreadable", device=device, error=str(error))
            return
        self.told[device] = Told(said, now_ns)
        other_login = self._tokens.get(device, token) != token
        self._tokens[device] = token
        self.identities.saw(device, said, address, now_ns, other_login=other_login)
        self.identities.changed.add(device)

    def take_changes(self) -> list[RowChange]:
        """Return the rows to be stored."""
        devices, self.identities.changed = sorted(self.identities.changed), set()
        return [RowChange(_PUT, list(map(self._row, devices)))] if devices else []

    def restore(self, rows: Iterable[tuple[str, int, str, str]]) -> None:
        """Take in the stored rows; unreadable ones are left out, and logged."""
        for device, told_ns, report, identity in rows:
            try:
                known = msgspec.json.decode(identity, type=Identity)
                if report:
                    self.told[device] = Told(read_report(report.encode()), told_ns)
            except ValueError as error:
                log.warning("vehicle_not_restored", device=device, error=str(error))
            else:
                self.identities.restore({device: known})

    def _row(self, device: str) -> tuple[Any, ...]:
        told = self.told.get(device)
        identity = msgspec.json.encode(self.identities.of(device)).decode()
        if told is None:
            return device, 0, "", identity
        return device, told.told_ns, msgspec.json.encode(told.report).decode(), identity


async def restored(registry: Registry) -> Vehicles:
    """Return vehicles' former words.

    Raises:
        RegistryError: the database refused.
    """
    vehicles = Vehicles()
    rows = await registry.fetch("SELECT device, told_ns, report, identity FROM vehicle")
    vehicles.restore((row[0], row[1], row[2], row[3]) for row in rows)
    return vehicles

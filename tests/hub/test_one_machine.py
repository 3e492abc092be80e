"""An operator's word that one machine alone is left: answered, stored, and refused where nobody was heard."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from backhaul_codec.protocol.vehicle_report import VehicleReport
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.vehicles.core import Vehicles
from backhaul_hub.vehicles.keeper import VehicleKeeper
from backhaul_hub.vehicles.one_machine import SERVICE, serve_one_machine
from tests.support.hub_sync import FakeClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from backhaul_hub.db.change import Change


class Rows:
    """In place of hub.db."""

    def __init__(self) -> None:
        self.changes: list[Change] = []

    async def write(self, changes: list[Change]) -> None:
        self.changes += changes


class Wire:
    """In place of a connection: one service, and what it answered."""

    max_payload = 1 << 20

    def __init__(self) -> None:
        self.answers: list[dict[str, Any]] = []
        self.data = b""
        self.subject = SERVICE
        self.reply = "_INBOX.1"
        self._served: Callable[[Any], Awaitable[None]] | None = None

    async def subscribe(self, subject: str, cb: Callable[[Any], Awaitable[None]]) -> None:
        assert subject == SERVICE
        self._served = cb

    async def respond(self, data: bytes) -> None:
        self.answers.append(json.loads(data))

    async def ask(self, device: str) -> dict[str, Any]:
        self.data = json.dumps({"device": device}).encode()
        assert self._served is not None
        await self._served(self)
        return self.answers[-1]


async def test_an_operator_says_so_and_the_machine_is_named() -> None:
    vehicles, rows, wire = Vehicles(), Rows(), Wire()
    for machine in ("a1", "b2"):
        vehicles.identities.saw("VID-007", VehicleReport(machine, "", "1", "1"), "10.0.0.9", 10)
    keeper = VehicleKeeper(
        *(vehicles, rows, FakeClock(), {}, Continuity())  # type: ignore[arg-type]
    )
    await serve_one_machine(wire, keeper)  # type: ignore[arg-type]
    assert vehicles.identities.answerer("VID-007") == ""
    said = await wire.ask("VID-007")
    assert said == {"device": "VID-007", "machine": "b2", "address": "10.0.0.9"}
    assert vehicles.identities.answerer("VID-007") == "b2"
    (change,) = rows.changes
    assert [row[0] for row in change.rows] == ["VID-007"]
    refused = await wire.ask("VID-008")
    assert refused["error"]["message"] == "no machine of VID-008 was ever heard"

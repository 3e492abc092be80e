"""An operator's word that one machine alone is left: answered, stored, and refused where nobody was heard."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backhaul_codec.protocol.vehicle_report import VehicleReport
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.errors import HubError
from backhaul_hub.questions import OneDevice
from backhaul_hub.vehicles.core import Vehicles
from backhaul_hub.vehicles.keeper import VehicleKeeper
from tests.support.hub_sync import FakeClock

if TYPE_CHECKING:
    from backhaul_hub.db.change import RowChange


class Rows:
    """In place of hub.db."""

    def __init__(self) -> None:
        self.changes: list[RowChange] = []

    async def write(self, changes: list[RowChange]) -> None:
        self.changes += changes


async def test_an_operator_says_so_and_the_machine_is_named() -> None:
    vehicles, rows = Vehicles(), Rows()
    for machine in ("a1", "b2"):
        vehicles.identities.saw("VID-007", VehicleReport(machine, "", "1", "1"), "10.0.0.9", 10)
    keeper = VehicleKeeper(
        *(vehicles, rows, FakeClock(), {}, Continuity())  # type: ignore[arg-type]
    )
    assert vehicles.identities.answerer("VID-007") == ""
    said = await keeper.one_machine(OneDevice("VID-007"))
    assert said == {"device": "VID-007", "machine": "b2", "address": "10.0.0.9"}
    assert vehicles.identities.answerer("VID-007") == "b2"
    (change,) = rows.changes
    assert [row[0] for row in change.rows] == ["VID-007"]
    with pytest.raises(HubError, match="no machine of VID-008 was ever heard"):
        await keeper.one_machine(OneDevice("VID-008"))

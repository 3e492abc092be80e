"""Why each program has an account of its own, and a vehicle without programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from backhaul_agent.cli.main import cli
from backhaul_agent.errors import VehicleFilesError

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_vehicle_that_has_not_enrolled_has_no_programs(tmp_path: Path) -> None:
    with pytest.raises(VehicleFilesError, match="first: backhaul-agent enrol"):
        CliRunner().invoke(
            cli, ["app", "add", "gps", "--dir", str(tmp_path)], catch_exceptions=False
        )

"""What the survey reads out of the rollups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backhaul_spark.fleet.readings import Readings, Windows
from backhaul_spark.fleet.stuck import longest_runs
from backhaul_spark.tables.delta import make_table, open_table
from backhaul_spark.tables.schemas import ROLLUPS_TABLE
from tests.support.fleet_rollups import CABIN, DAY, SimulatedFleet

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fleet_rollups import Floats


class Rounding(SimulatedFleet):
    """A fleet whose hours have means as sums of ever so many equal numbers come to."""

    def windows(self, *arguments: object) -> dict[str, Floats]:
        found = super().windows(*arguments)  # type: ignore[arg-type]
        for name in ("min", "max", "first", "last"):
            found[name][:] = 15.1
        for hour in range(found["mean"].shape[1]):
            number = 10 + hour
            found["mean"][:, hour] = sum([15.1] * number) / number
        return found


def test_a_number_that_stands_still_does_so_however_many_readings_an_hour_has(
    tmp_path: Path,
) -> None:
    """Means of equal numbers differ in the last bit, and a sensor that stuck was taken for lively."""
    make_table(str(tmp_path), ROLLUPS_TABLE)
    fleet = Rounding(3)
    assert len(set(fleet.windows(CABIN, DAY, "1h")["mean"][0])) > 1
    fleet.write(str(tmp_path), DAY)
    rollups = open_table(str(tmp_path), ROLLUPS_TABLE).to_pyarrow_dataset()
    [(_, cells)] = Readings(rollups).cells(Windows("1h", DAY), fleet.names, [CABIN])
    hours, _, value = longest_runs(cells)
    assert (hours.tolist(), value.tolist()) == ([24] * 3, [15.1] * 3)

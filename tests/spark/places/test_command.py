"""`backhaul-spark places`: what it says, and what it refuses before Spark starts; and the report's section."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.cli.main import cli
from backhaul_spark.errors import OptionError, TableMissingError
from backhaul_spark.fleet.job import FleetJob
from backhaul_spark.fleet.settings import FleetSettings
from backhaul_spark.places.settings import PlacesSettings
from backhaul_spark.report.report import Report
from tests.support.fleet_rollups import DAY, SimulatedFleet
from tests.support.places_world import FENCES, PlacesWorld, drive, stand
from tests.support.spark_frames import T0_NS

if TYPE_CHECKING:
    from pathlib import Path

WAY = [*stand(0, 600, 0), *drive(600, 1200, 0, 3000), *stand(1200, 1800, 3000)]


def refused(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["places", *arguments])
    assert isinstance(result.exception, OptionError | TableMissingError), result.output
    return str(result.exception)


def test_what_is_wrong_is_named_before_spark_starts(tmp_path: Path) -> None:
    root = ("--table-root", str(tmp_path))
    config, fences = tmp_path / "twin.toml", tmp_path / "fences.toml"
    assert "points" in refused(*root)
    fences.write_text("[fences.a]\nlat = 91\nlon = 1\nradius_m = 1")
    assert "[fences.a]: latitude=91: expected degrees, -90 to 90" in refused(
        *root, "--fences", str(fences)
    )
    assert "expected lat=SERIES lon=SERIES" in refused(*root, "--positions", "gps.lat", "gps.lon")
    assert "a series such as" in refused(*root, "--positions", "lat=gps", "lon=gps.lon")
    for text, said in (
        ("gap_s = 10", "gap_s=10.0: expected stop_s (180) or more"),
        ("stop_m = 0", "stop_m=0.0: expected a number above 0"),
        ("stop = 3", "'stop': expected one of"),
        ("energy_kind = 'fuel'", "Invalid enum value 'fuel'"),
        ("energy = 'gps.lat'", "expected each series once"),
        ("cell_resolution = 16", "cell_resolution=16: expected 0 to 15"),
    ):
        config.write_text(f"[places]\n{text}")
        assert said in refused(*root, "--config", str(config))


def test_positions_of_the_command_line_take_the_place_of_the_files(tmp_path: Path) -> None:
    config = tmp_path / "twin.toml"
    config.write_text('[places]\npositions = [["a.y", "a.x"]]\nstop_s = 60')
    found = PlacesSettings.read(str(config), [("lat=nav.y", "lon=nav.x")])
    assert (found.positions, found.stop_s) == ((("nav.y", "nav.x"),), 60)
    assert set(found.roles().values()) == {"lat", "lon"}


@pytest.mark.slow
def test_the_report_of_a_day_shows_places_and_is_due_again_when_they_change(tmp_path: Path) -> None:
    root = str(tmp_path / "tables")
    SimulatedFleet(60, 3).write(root, DAY)
    FleetJob(root, SYSTEM_CLOCK, FleetSettings()).run(DAY)
    pages = Report(root, SYSTEM_CLOCK)
    pages.write(DAY, str(tmp_path))
    assert "<h2>Places</h2>" not in (tmp_path / f"fleet-{DAY}.html").read_text()
    assert pages.due(str(tmp_path)) == []
    fence = replace(FENCES[0], name="<b>depot</b>")
    world = PlacesWorld(tmp_path / "tables", fences=(fence,))
    begin_s = datetime(DAY.year, DAY.month, DAY.day, tzinfo=UTC).timestamp() - T0_NS / 1e9
    world.send(each._replace(s=each.s + begin_s) for each in WAY)
    world.run()
    assert pages.due(str(tmp_path)) == [DAY]
    pages.write(DAY, str(tmp_path))
    page = (tmp_path / f"fleet-{DAY}.html").read_text()
    assert "1 trips and 2 stops of 1 vehicles began on this day: 3 km in 10 min" in page
    assert '<td class="id">VID-001</td><td class="n">1</td>' in page
    assert "<td>&lt;b&gt;depot&lt;/b&gt;</td>" in page
    assert pages.due(str(tmp_path)) == []

"""`backhaul-spark places` on Spark: the same tables as without."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from backhaul_spark.cli.main import cli
from tests.support.places_world import PlacesWorld, drive, stand

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark

WAY = [*stand(0, 600, 0), *drive(600, 1200, 0, 3000), *stand(1200, 1800, 3000)]


def test_the_command_runs_on_spark_and_says_what_it_did(tmp_path: Path) -> None:
    world = PlacesWorld(tmp_path / "a")
    world.send(WAY)
    arguments = ["places", "--table-root", world.root, "--json", "--quiet"]
    result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    said = json.loads(result.stdout)
    assert (said["created"], said["restated"], said["anew"]) == (3, 0, False)
    world.fences = ()
    assert world.said() == world.from_scratch(tmp_path / "b").said()

"""What `history` makes of odd values: no numbers, sums beyond a double, repeats."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Literal

import pytest
from click.testing import CliRunner, Result

from backhaul_codec import Point, encode_point
from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.cli.main import cli
from backhaul_spark.ingest.batch import Ingest
from backhaul_spark.query.history import History, parse_series
from backhaul_spark.rollup.rollup import Rollup, run_here
from tests.support.spark_fleet import Fleet
from tests.support.spark_frames import T0_NS, frame, message_batch, stored, task

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

WIDTHS: tuple[Literal["1m", "1h", "1d"], ...] = ("1m", "1h", "1d")


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def test_readings_that_json_has_no_number_for_are_named(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    fleet.send((0, math.nan), (1, math.inf), (2, -math.inf), (3, 4.0))
    fleet.rollup()
    common = ("--table-root", fleet.root, "--device", "VID-001")
    series = (*common, "--series", "battery.soc", "--json", "--resolution")
    raw = json.loads(invoke("history", *series, "raw").output, parse_constant=_refuse)
    assert [row["value"] for row in raw["rows"]] == ["NaN", "Infinity", "-Infinity", 4.0]
    [hour] = json.loads(invoke("history", *series, "1h").output, parse_constant=_refuse)["rows"]
    assert (hour["min"], hour["max"], hour["last"]) == ("-Infinity", "Infinity", 4.0)
    restated = invoke("restated", *common, "--since", "2026-01-01", "--unfinished", "--json")
    assert len(json.loads(restated.output, parse_constant=_refuse)["windows"]) == 3


def test_the_mean_of_numbers_whose_sum_no_double_holds_is_a_number(tmp_path: Path) -> None:
    fleet, big = Fleet(tmp_path), 1.7e308
    fleet.send((0, big), (1, big), (2, big), (61, big), (122, -big))
    fleet.rollup()
    ask, soc = History(fleet.root).ask, parse_series("VID-001", "battery.soc")
    for width in WIDTHS:
        [mean] = ask(soc, resolution=width).rows.column("mean").to_pylist()
        assert mean == pytest.approx(0.6 * big)


def test_raw_shows_a_repeat_once_as_rollups_count_it(tmp_path: Path) -> None:
    """A program says a value as state (letter p) and as telemetry (letter f)."""
    ingest = Ingest(str(tmp_path), SYSTEM_CLOCK)
    point = Point("battery", "soc", T0_NS, 1.5, origin="app")
    live = [encode_point(point, epoch=1, seq=seq) for seq in (7, 8)]
    frames = message_batch("UP_00", stored([frame(1, [1.5, 2.5])]))
    alone = message_batch("UP_00", stored(live, leaf="p.battery.soc.%", first_seq=2))
    ingest.commit("app", 0, [task(str(tmp_path), ingest.tables.next_ingest, alone, frames)])
    Rollup(str(tmp_path), SYSTEM_CLOCK, run_here).run()
    history, soc = History(str(tmp_path)), parse_series("VID-001", "battery.soc")
    assert history.ask(soc, resolution="raw").rows.column("value").to_pylist() == [1.5, 2.5]
    assert history.ask(soc, resolution="1h").rows.column("count").to_pylist() == [2]


def _refuse(name: str) -> None:
    raise AssertionError(name)

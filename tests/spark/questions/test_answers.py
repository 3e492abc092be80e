"""The answer of each question, out of rollups and out of points, beside one computed reading by reading."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from backhaul_spark.errors import OptionError, TableMissingError
from backhaul_spark.questions.ask import InDuckDB, ask
from backhaul_spark.questions.catalogue import question, questions
from backhaul_spark.questions.settings import QuestionsSettings
from backhaul_spark.questions.views import About
from tests.support.spark_frames import T0_NS
from tests.support.truck_answers import (
    DAY_NS,
    HOUR_NS,
    Answers,
    Row,
    assert_alike,
    energy_per_distance,
    rows_of,
)
from tests.support.truck_world import EARLIER_NS, NOW_NS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from backhaul_spark.questions.views import Source
    from tests.support.truck_world import TruckWorld

pytestmark = pytest.mark.slow

SOURCES = pytest.mark.parametrize("source", ["rollups", "points"])
SAID = {"vehicle"}


@pytest.fixture(scope="module")
def duck(world: TruckWorld) -> Iterator[InDuckDB]:
    with InDuckDB(world.root) as found:
        yield found


def expected(world: TruckWorld, name: str, from_ns: int, to_ns: int) -> list[Row]:
    if name == "energy-per-distance":
        return energy_per_distance(
            world, DeltaTable(f"{world.root}/trips").to_pyarrow_table().to_pylist()
        )
    return Answers(world, from_ns, to_ns).of(name)


@SOURCES
@pytest.mark.parametrize("name", questions())
def test_the_answer_is_that_of_the_readings(
    world: TruckWorld, duck: InDuckDB, name: str, source: Source
) -> None:
    """With an end in the middle, so that the questions about the last hours have one that is not trivial."""
    wanted, settings = question(name), QuestionsSettings(units={"truck.load": "kg"})
    to_ns = EARLIER_NS if wanted.span_ns else None
    found = ask(duck, wanted, settings, About(to_ns=to_ns, source=source), NOW_NS)
    assert found.column_names == list(wanted.columns)
    from_ns = EARLIER_NS - wanted.span_ns if wanted.span_ns else 0
    rows = rows_of(found)
    if name in ("last-known", "series"):
        rows = [row for row in rows if not SAID & {*row[:2]}]
        wanted_rows = sorted(expected(world, name, 0, NOW_NS))
    else:
        wanted_rows = expected(world, name, from_ns, to_ns or NOW_NS)
    assert rows, "nothing is compared"
    assert_alike(rows, wanted_rows)


@SOURCES
@pytest.mark.parametrize("name", ["average-load", "low-fuel", "utilisation", "last-location"])
def test_a_part_of_the_time_is_asked_for(
    world: TruckWorld, duck: InDuckDB, name: str, source: Source
) -> None:
    from_ns, to_ns = T0_NS + 7 * HOUR_NS, T0_NS + DAY_NS + 5 * HOUR_NS
    asked = About(from_ns, to_ns, source=source)
    found = rows_of(ask(duck, question(name), QuestionsSettings(), asked, NOW_NS))
    assert_alike(found, expected(world, name, from_ns, to_ns))


@SOURCES
def test_one_vehicle_and_one_fleet(world: TruckWorld, duck: InDuckDB, source: Source) -> None:
    wanted, settings = question("last-location"), QuestionsSettings()
    every = rows_of(ask(duck, wanted, settings, About(source=source), NOW_NS))
    one = ask(duck, wanted, settings, About(device="TRK-00003", source=source), NOW_NS)
    assert rows_of(one) == [row for row in every if row[0] == "TRK-00003"]
    north = {truck.device for truck in world.trucks if truck.fleet == "North"}
    some = ask(duck, wanted, settings, About(fleet="North", source=source), NOW_NS)
    assert rows_of(some) == [row for row in every if row[0] in north]


def test_the_last_ten_minutes_end_with_the_newest_reading(duck: InDuckDB) -> None:
    """A clock that is ahead does not count: what it says comes after now."""
    wanted, settings = question("stationary"), QuestionsSettings()
    implied = ask(duck, wanted, settings, About(), NOW_NS)
    told = ask(duck, wanted, settings, About(to_ns=NOW_NS), NOW_NS)
    assert rows_of(implied) == rows_of(told)
    earlier = ask(duck, wanted, settings, About(source="points"), EARLIER_NS)
    assert rows_of(earlier) == rows_of(
        ask(duck, wanted, settings, About(to_ns=EARLIER_NS, source="points"), NOW_NS)
    )


def test_series_have_the_names_of_the_settings(duck: InDuckDB) -> None:
    other = QuestionsSettings(fuel="truck.load", low_fuel=1e9)
    found = ask(duck, question("low-fuel"), other, About(), NOW_NS)
    assert max(found.column("fuel").to_pylist()) > 1000
    nothing = QuestionsSettings(fuel="no.such")
    assert ask(duck, question("low-fuel"), nothing, About(), NOW_NS).num_rows == 0


def test_a_name_that_the_two_kinds_of_sql_write_differently_is_refused(duck: InDuckDB) -> None:
    for name in ("a'b", "a\\b", "a\nb"):
        with pytest.raises(OptionError, match="quotes"):
            ask(duck, question("last-known"), QuestionsSettings(), About(device=name), NOW_NS)


def test_a_table_that_is_not_there_is_named(tmp_path: Path) -> None:
    with InDuckDB(str(tmp_path)) as duck, pytest.raises(TableMissingError, match="rollups"):
        ask(duck, question("last-known"), QuestionsSettings(), About(), NOW_NS)

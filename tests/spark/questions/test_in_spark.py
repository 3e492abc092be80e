"""Spark gives the answers that DuckDB gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backhaul_spark.questions.ask import InDuckDB, InSpark, ask
from backhaul_spark.questions.catalogue import question, questions
from backhaul_spark.questions.settings import QuestionsSettings
from backhaul_spark.questions.views import About
from tests.support.spark_frames import T0_NS
from tests.support.truck_answers import HOUR_NS, assert_alike, rows_of
from tests.support.truck_world import EARLIER_NS, NOW_NS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.support.truck_world import TruckWorld

pytestmark = pytest.mark.spark

# An end in the middle for the questions about the last hours; of the views out of points each kind once.
ASKED = [(name, About()) for name in questions() if question(name).span_ns is None]
ASKED += [(name, About(to_ns=EARLIER_NS)) for name in questions() if question(name).span_ns]
ASKED += [
    ("high-load", About(source="points", fleet="West")),
    ("last-known", About(source="points", device="TRK-00001")),
    ("fuel-use-and-nominal", About(from_ns=T0_NS + 7 * HOUR_NS, source="points")),
]


@pytest.fixture(scope="module")
def in_spark(spark: SparkSession, world: TruckWorld) -> Iterator[InSpark]:
    with InSpark(spark, world.root) as found:
        yield found


@pytest.fixture(scope="module")
def duck(world: TruckWorld) -> Iterator[InDuckDB]:
    with InDuckDB(world.root) as found:
        yield found


@pytest.mark.parametrize(("name", "asked"), ASKED, ids=lambda each: getattr(each, "source", each))
def test_spark_answers_as_duckdb_does(
    in_spark: InSpark, duck: InDuckDB, name: str, asked: About
) -> None:
    settings, wanted = QuestionsSettings(), question(name)
    theirs = ask(in_spark, wanted, settings, asked, NOW_NS)
    ours = ask(duck, wanted, settings, asked, NOW_NS)
    assert theirs.schema.names == ours.schema.names
    assert [(f.name, f.type) for f in theirs.schema] == [(f.name, f.type) for f in ours.schema]
    assert theirs.num_rows > 0
    assert_alike(rows_of(theirs), rows_of(ours))

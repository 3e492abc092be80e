"""The snippet for Spark of docs/readers.md."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.spark_fleet import Fleet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs/readers.md"


def test_spark(spark: SparkSession, tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    fleet.send((0, 1.0), (7, 2.0))
    fleet.rollup()
    snippet = PAGE.read_text().partition("## Spark\n")[2].partition("```python\n")[2]
    found: dict[str, Any] = {"spark": spark}
    exec(snippet.partition("```")[0].replace("ROOT", fleet.root), found)
    spark.catalog.dropTempView("rollups")
    assert [tuple(row) for row in found["rows"]] == [("VID-001", 2)]

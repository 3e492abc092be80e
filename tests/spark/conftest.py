"""Fixtures of the Spark part's tests. One JVM serves all of them: it takes seconds to start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.spark_server import hub_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

__all__ = ["hub_server"]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session of `backhaul_spark.session`, shared."""
    from backhaul_spark.session import spark_session

    session = spark_session("tests")
    yield session
    session.stop()

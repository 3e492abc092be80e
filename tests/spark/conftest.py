"""Fixtures of the Spark part's tests."""

from tests.support.spark_server import hub_server

__all__ = ["hub_server"]

"""With real servers: ctrl-C ends a command that runs on with a line and status 130, and SIGTERM with status 0."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from backhaul_spark.session import spark_session
from tests.spark.stopped_job import stop

if TYPE_CHECKING:
    from backhaul_spark.cli import _service

__all__ = ["stop"]  # a fixture

pytestmark = pytest.mark.spark


def test_spark_leaves_ctrl_c_to_the_command(stop: _service.Stop) -> None:
    """Its own way raises in the middle of what is said to Java."""
    own = signal.getsignal(signal.SIGINT)
    spark_session()
    assert signal.getsignal(signal.SIGINT) is own
    signal.raise_signal(signal.SIGINT)
    assert stop.interrupted

"""A job that is told to stop."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from backhaul_spark.cli import _service

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def stop() -> Iterator[_service.Stop]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield _service.stop_on_signals()
    for number, handler in before.items():
        signal.signal(number, handler)

"""Ctrl-C ends a command that runs on with a line and status 130, and SIGTERM with status 0."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

import pytest

from backhaul_spark.cli import _service
from backhaul_spark.session import _own_ctrl_c, spark_session

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def stop() -> Iterator[_service.Stop]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield _service.stop_on_signals()
    for number, handler in before.items():
        signal.signal(number, handler)


def test_ctrl_c_is_raised_once_the_work_has_come_to_its_end(stop: _service.Stop) -> None:
    ended = []

    def work() -> None:
        signal.raise_signal(signal.SIGINT)
        assert stop.is_set()
        ended.append(True)

    with pytest.raises(KeyboardInterrupt):
        _service.run_on(work, stop, quiet=True)
    assert ended == [True]


def test_a_service_manager_is_obeyed_without_a_word(stop: _service.Stop) -> None:
    _service.run_on(lambda: signal.raise_signal(signal.SIGTERM), stop, quiet=True)
    assert stop.is_set()


@pytest.mark.spark
def test_spark_leaves_ctrl_c_to_the_command(stop: _service.Stop) -> None:
    """Its own way raises in the middle of what is said to Java."""
    own = signal.getsignal(signal.SIGINT)
    spark_session()
    assert signal.getsignal(signal.SIGINT) is own
    signal.raise_signal(signal.SIGINT)
    assert stop.interrupted


def test_a_session_can_be_asked_for_in_any_thread() -> None:
    done = []

    def ask() -> None:
        with _own_ctrl_c():
            done.append(True)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert done == [True]

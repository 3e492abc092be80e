"""Ctrl-C ends a command that runs on with a line and status 130, and SIGTERM with status 0."""

from __future__ import annotations

import signal
import threading

import pytest

from backhaul_spark.cli import _service
from backhaul_spark.session import _own_ctrl_c
from tests.spark.stopped_job import stop

__all__ = ["stop"]  # a fixture


def test_ctrl_c_is_raised_once_the_work_has_come_to_its_end(stop: _service.Stop) -> None:
    ended = []

    def work() -> None:
        signal.raise_signal(signal.SIGINT)
        assert stop.is_set()
        ended.append(True)

    with pytest.raises(KeyboardInterrupt):
        _service.run_on(work, stop, print)
    assert ended == [True]


def test_a_service_manager_is_obeyed_without_a_word(stop: _service.Stop) -> None:
    _service.run_on(lambda: signal.raise_signal(signal.SIGTERM), stop, print)
    assert stop.is_set()


def test_a_session_can_be_asked_for_in_any_thread() -> None:
    done = []

    def ask() -> None:
        with _own_ctrl_c():
            done.append(True)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert done == [True]

"""Shared parts of commands that run until they are stopped."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from backhaul_spark.cli._options import Tell
from backhaul_spark.errors import HubServerError, LoginRefusedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RETRY_S = 5.0


class Stop(threading.Event):
    """Whether to stop, and whether Ctrl-C said so."""

    interrupted = False

    def interrupt(self) -> None:
        """Take Ctrl-C."""
        self.interrupted = True
        self.set()


def stop_on_signals() -> Stop:
    """Return a flag that SIGTERM, from a service manager, and Ctrl-C set."""
    stop = Stop()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, lambda *_: stop.interrupt())
    return stop


@contextmanager
def spark(app: str, *, verbose: bool) -> Iterator[SparkSession]:
    """Have a session for as long as this lasts."""
    from backhaul_spark.session import spark_session

    session = spark_session(app, verbose=verbose)
    try:
        yield session
    finally:
        session.stop()


def run_on(run: Callable[[], None], stop: Stop, tell: Tell) -> None:
    """Call `run` until told to stop; a hub that is away for a while is waited for.

    Raises:
        KeyboardInterrupt: Ctrl-C said so, and `run` has come to its end.
    """
    while not stop.is_set():
        try:
            run()
        except LoginRefusedError:
            raise
        except HubServerError as error:
            tell(f"{error}; trying again in {RETRY_S:g} s")
            stop.wait(RETRY_S)
    if stop.interrupted:
        raise KeyboardInterrupt


def seconds(text: str, option: str) -> float:
    """Read a duration such as `5s`, `500ms`, `2m` or a bare number of seconds."""
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "": 1.0}
    number = text.rstrip("ms")
    try:
        value = float(number) * units[text[len(number) :]]
    except (ValueError, KeyError):
        value = 0.0
    if value <= 0:
        raise click.BadParameter(f"{text!r} is not a duration such as 5s", param_hint=option)
    return value

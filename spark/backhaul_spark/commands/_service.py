"""What commands have in common that run until they are stopped."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

import click

from backhaul_spark.commands import _options
from backhaul_spark.errors import HubError, LoginRefused

if TYPE_CHECKING:
    from collections.abc import Callable

RETRY_S = 5.0


def stop_on_signals() -> threading.Event:
    """Return a flag that SIGTERM, from a service manager, and Ctrl-C set."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def run_on(run: Callable[[], None], stop: threading.Event, *, quiet: bool) -> None:
    """Call `run` until told to stop; a hub that is away for a while is waited for."""
    while not stop.is_set():
        try:
            run()
        except LoginRefused:
            raise
        except HubError as error:
            _options.tell(f"{error}; trying again in {RETRY_S:g} s", quiet=quiet)
            stop.wait(RETRY_S)


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

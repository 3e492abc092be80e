"""Logs of agent and control plane: one JSON object a line, with tracebacks and libraries' records."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any, TextIO, cast

import structlog

from backhaul_codec.programs.log_lines import Brake, tidy


def configure(file: TextIO, monotonic_s: Callable[[], float], level: str = "debug") -> None:
    """Set up structlog, and Python's own logging, for the whole process.

    Args:
        file: where lines go.
        monotonic_s: seconds; by them faults that repeat are braked.
        level: the lowest that is written.
    """
    processors: list[Any] = [
        structlog.processors.add_log_level,
        Brake(monotonic_s, structlog.DropEvent),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        tidy,
        structlog.processors.JSONRenderer(),
    ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", Forgiving(file))),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if isinstance(handler, _OfLibraries):
            root.removeHandler(handler)
    root.addHandler(_OfLibraries(logging.WARNING))


class Forgiving:
    """Writes to a file, and drops records that it does not take: its disk may be full.

    A process whose log cannot be written must go on all the same.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        """Write as much as is taken, and say that it was all."""
        with contextlib.suppress(OSError):
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        """Hand on the written lines."""
        with contextlib.suppress(OSError):
            self._file.flush()


class _OfLibraries(logging.Handler):
    """Turns records of asyncio and nats-py into lines like ours: else they would be raw text."""

    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger(record.name)
        method = log.error if record.levelno >= logging.ERROR else log.warning
        said = record.getMessage()
        # By its beginning, so that what repeats counts as one kind.
        method(said[:100], logger=record.name, said=said, exc_info=record.exc_info or None)

"""Logging as JSON lines to stderr: what the control plane does, and commands that an audit asks about."""

from __future__ import annotations

import sys

import structlog


def log_to_stderr() -> None:
    """Have structlog write one JSON object a line to standard error."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )

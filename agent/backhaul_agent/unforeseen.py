"""An answer also where nobody foresaw what a program would ask: it never waits in vain."""

from __future__ import annotations

import structlog

from backhaul_agent.errors import Code, RefusedError

log = structlog.get_logger("requests")


def unforeseen(subject: str, error: Exception) -> RefusedError:
    """Log an error with its traceback; return what the program is told that asked on a subject."""
    log.error(
        "a request failed through a fault of the agent", subject=subject[:200], exc_info=error
    )
    return RefusedError(
        Code.INTERNAL, "a fault of the agent, not of this request: its log has the traceback"
    )

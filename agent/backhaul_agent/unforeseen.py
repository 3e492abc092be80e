"""An answer also to a question that nobody foresaw: the program never waits in vain."""

from __future__ import annotations

import structlog

from backhaul_agent.errors import Code, RefusedError

log = structlog.get_logger("requests")


def unforeseen(subject: str, error: Exception) -> RefusedError:
    """Log an error with its traceback; return the answer for the program that asked on a subject."""
    log.error("request_failed", subject=subject[:200], exc_info=error)
    return RefusedError(
        Code.INTERNAL, "a fault of the agent, not of this request: its log has the traceback"
    )

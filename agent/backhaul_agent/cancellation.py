"""A cancellation that nats-py may have swallowed."""

from __future__ import annotations

import asyncio


def heed_cancel() -> None:
    """Raise CancelledError if this task was cancelled while nats-py waited.

    It waits with `asyncio.wait_for`, which before Python 3.12 forgets a cancellation that arrives
    together with the answer; a session that forgets its end would never let the daemon stop.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError

"""Waits with an end: for an event, and in spite of nats-py, which may swallow a cancellation."""

from __future__ import annotations

import asyncio


async def heard(event: asyncio.Event, wait_s: float | None) -> bool:
    """Wait for an event, for so many seconds at most (None: for ever); return whether it came."""
    try:
        async with asyncio.timeout(wait_s):
            return await event.wait()
    except TimeoutError:
        return False


def cancels() -> int:
    """Return how often this task was cancelled so far: ask before a wait, tell `heed_cancel` after.

    Not always 0 in a task that lives on: before Python 3.13 a TaskGroup that fails while it is being
    left cancels its task, swallows that, and leaves the count where it is.
    """
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0


def heed_cancel(since: int = 0) -> None:
    """Raise CancelledError if this task was cancelled while nats-py waited.

    It waits with `asyncio.wait_for`, which before Python 3.12 forgets a cancellation that arrives
    together with the answer; a session that forgets its end would never let the daemon stop.

    Args:
        since: what `cancels` said before the wait.
    """
    if cancels() > since:
        raise asyncio.CancelledError

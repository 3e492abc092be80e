"""How nats-py ends things: a cancellation that it may swallow, a close that may fail."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from nats.errors import Error as NatsError

if TYPE_CHECKING:
    from nats.aio.client import Client


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


async def close_quietly(client: Client) -> None:
    """Close a connection whose other end may be gone.

    The reset that nats-py then raises would replace whatever is already on its way out.
    """
    with contextlib.suppress(NatsError, OSError):
        await client.close()

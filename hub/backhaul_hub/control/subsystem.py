"""The parts that a control plane is made of: started one after another, run together, stopped in reverse."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from contextlib import AsyncExitStack
from typing import Any, Protocol, TypeAlias

Tasks: TypeAlias = Iterable[Coroutine[Any, Any, None]]
_RETRY_S = 1.0


class Subsystem(Protocol):
    """One part; each step may be left out."""

    async def start(self) -> None:
        """Come up; all parts that stand before this one are up. Raises: HubError."""
        return

    def tasks(self) -> Tasks:
        """Return this part's tasks, which run from when all parts are up."""
        return ()

    async def stop(self) -> None:
        """Close this part; its tasks have ended. Called too where `start` has failed."""
        return


async def run(parts: Iterable[Subsystem], stop: asyncio.Event) -> None:
    """Start the parts in their order, run their tasks until `stop` is set, and stop them in reverse.

    Raises:
        HubError: a part could not start.
        ExceptionGroup: the errors with which tasks have ended.
    """
    async with AsyncExitStack() as stack:
        parts = list(parts)
        for part in parts:
            stack.push_async_callback(part.stop)
            await part.start()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for part in parts for work in part.tasks()]
            try:
                await stop.wait()
            finally:
                # Where one has failed, too: the group cancels each of the others once only.
                await _cancel(tasks)


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait until they have ended.

    More than once where needed: before Python 3.12 `asyncio.wait_for`, which nats-py's requests
    wait with, loses a cancellation that arrives together with the answer (bpo-37658).
    """
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=_RETRY_S)

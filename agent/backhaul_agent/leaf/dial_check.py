"""Looks for some seconds whether the leaf server dials: asks at the hub's port, and reads the server's log."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from backhaul_agent.leaf.redial import DialLook

LOOK_S = 15.0
ANSWER_S_MAX = 5.0
LEAF_PORT = 7422
LOG_BYTES_MAX = 256 * 1024


async def look(
    urls: Sequence[str],
    log: Path | None,
    is_down: Callable[[], Awaitable[bool]],
    look_s: float,
) -> DialLook:
    """Look for ``look_s`` seconds.

    Args:
        urls: where the leaf server finds the hub.
        log: the leaf server's; None: nobody knows where it is.
        is_down: whether the link is down now.
        look_s: in seconds; a server that dials does so several times meanwhile.
    """
    answered = await _first_that_answers(urls)
    before = None if log is None else await asyncio.to_thread(_end_of, log)
    await asyncio.sleep(look_s if answered else 0.0)
    logged = None
    if log is not None and before is not None:
        logged = await asyncio.to_thread(_since, log, before)
    if answered:
        answered = await _first_that_answers([answered])
    return DialLook(answered, logged, await is_down(), look_s)


async def _first_that_answers(urls: Sequence[str]) -> str:
    for url in urls:
        place = urlsplit(url)
        with contextlib.suppress(OSError, TimeoutError, ValueError):
            async with asyncio.timeout(ANSWER_S_MAX):
                if place.hostname and await _greets(place.hostname, place.port or LEAF_PORT):
                    return url
    return ""


async def _greets(host: str, port: int) -> bool:
    """Return whether a nats-server is at a port: it speaks first, also where TLS follows."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        return (await reader.read(4)) == b"INFO"
    finally:
        writer.close()


def _end_of(log: Path) -> tuple[int, int] | None:
    """Return which file the log is, and its size; None: it cannot be read."""
    try:
        with log.open("rb"):
            found = log.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size


def _since(log: Path, before: tuple[int, int]) -> str | None:
    """Return the new text of the log; of a new file all. None: it cannot be read."""
    number, size = before
    try:
        with log.open("rb") as file:
            if log.stat().st_ino == number:
                file.seek(size)
            return file.read(LOG_BYTES_MAX).decode(errors="replace")
    except OSError:
        return None

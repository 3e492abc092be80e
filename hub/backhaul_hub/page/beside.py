"""Running the page's server as a process of its own, beside a control plane that somebody has started by hand."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)

_AGAIN_S = 5.0
_STOP_S = 10.0


@contextlib.asynccontextmanager
async def page_beside(directory: Path) -> AsyncIterator[None]:
    """Run `backhaul-hub page` for as long as this is open; where it ends it is started again."""
    keeper = asyncio.create_task(_keep(directory))
    try:
        yield
    finally:
        keeper.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeper


async def _keep(directory: Path) -> None:
    program = "from backhaul_hub.cli.main import main; main()"
    while True:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program, "page", "--dir", str(directory))
        )
        try:
            status = await process.wait()
        except asyncio.CancelledError:
            await _end(process)
            raise
        log.warning("page_ended", status=status, again_s=_AGAIN_S)
        await asyncio.sleep(_AGAIN_S)


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(_STOP_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()

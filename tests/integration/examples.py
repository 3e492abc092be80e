"""Running the examples of a page of docs/ as they stand, as a stock client would."""

from __future__ import annotations

import ast
import asyncio
import os
import re
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .conftest import World

DOCS = Path(__file__).parents[2] / "docs"
DEADLINE_S = 120.0


class Examples:
    """The Python programs of one page, by the name in their first line."""

    def __init__(self, page: str) -> None:
        text = (DOCS / page).read_text()
        self.texts = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", text, re.DOTALL))

    def imported(self) -> set[str]:
        """Return the modules that any of them imports."""
        return {
            (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name) or ""
            for text in self.texts.values()
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Import | ast.ImportFrom)
        }

    @asynccontextmanager
    async def running(
        self, world: World, name: str, **more: str
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run one with nothing of this project on its path, and `more` in its environment."""
        environment = world.hub.environment() | {"PATH": os.environ["PATH"]} | more
        arguments = [sys.executable, "-I", "-c", self.texts[name]]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *arguments, stdout=pipe, stderr=pipe, env=environment
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
                await process.wait()

    async def printed(self, world: World, name: str, **more: str) -> list[str]:
        """Run one to its end."""
        async with self.running(world, name, **more) as process, asyncio.timeout(DEADLINE_S):
            output, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        return output.decode().splitlines()


async def line(process: asyncio.subprocess.Process) -> str:
    """Return the next line that a program prints."""
    assert process.stdout is not None
    async with asyncio.timeout(DEADLINE_S):
        return (await process.stdout.readline()).decode().strip()

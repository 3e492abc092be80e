"""How much memory processes have resident, looked at every second, through the stages of a run."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psutil  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

_LOOK_S = 1.0


def resident_mb(process: int) -> float:
    """Return the resident set of a process in megabytes (10^6)."""
    return float(psutil.Process(process).memory_info().rss) / 1e6


@dataclass(slots=True)
class MemoryWatch:
    """Keeps every look by the stage it fell into; `resident` tells what a process has."""

    processes: Mapping[str, int]
    resident: Callable[[int], float] = resident_mb
    stages: dict[str, list[dict[str, float]]] = field(default_factory=dict)

    def begin(self, stage: str) -> None:
        """Begin a stage (or go on with one), with a look."""
        self.stages[stage] = self.stages.pop(stage, [])
        self.look()

    def look(self) -> None:
        """Look at all of them, for the stage that is on."""
        found = {name: self.resident(process) for name, process in self.processes.items()}
        next(reversed(self.stages.values())).append(found)

    def last(self, name: str, stage: str) -> float:
        """Return what a process had at the last look of a stage."""
        return self.stages[stage][-1][name]

    def peak(self, name: str, stage: str = "") -> float:
        """Return the most that a process had in a stage, or in all of them."""
        return max(
            look[name]
            for each, looks in self.stages.items()
            if stage in ("", each)
            for look in looks
        )

    @asynccontextmanager
    async def each_second(self) -> AsyncIterator[None]:
        """Look every second meanwhile; a stage has begun."""

        async def go() -> None:
            while True:
                await asyncio.sleep(_LOOK_S)
                self.look()

        async with asyncio.TaskGroup() as tasks:
            looking = tasks.create_task(go())
            try:
                yield
            finally:
                looking.cancel()

"""What a process and all that it has started use: a driver of Spark, its JVM, its workers."""

from __future__ import annotations

from dataclasses import dataclass, field

import psutil  # type: ignore[import-untyped]


@dataclass(slots=True)
class ProcessTree:
    """Processor time and memory, as looked at every so often.

    Workers that come and go between two looks are not seen; those of Spark stay.
    """

    pid: int
    memory_mb: list[float] = field(default_factory=list)
    """Of each look; pages that several share count once."""
    _of_each: dict[int, float] = field(default_factory=dict)

    @property
    def cpu_s(self) -> float:
        """Processor seconds of all that were ever seen."""
        return sum(self._of_each.values())

    def look(self) -> None:
        """Take in what has been used by now."""
        shared = 0
        try:
            root = psutil.Process(self.pid)
            tree = [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        for process in tree:
            try:
                times = process.cpu_times()
                shared += process.memory_full_info().pss
            except psutil.Error:
                continue
            self._of_each[process.pid] = times.user + times.system
        self.memory_mb.append(shared / 1e6)

"""The answer to ``agent.status``: everything an operator or a test asks a running agent."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Report = tuple[str, Callable[[], dict[str, Any]]]
"""A section of the status, and a part that has something to report in it; "": at the top."""

STATUS_SUBJECT = "agent.status"


def status(reports: Iterable[Report]) -> dict[str, Any]:
    """Return the agent's state as JSON-ready values; sizes in bytes, times in seconds.

    Sections stand in the order of their first reports. Several parts may report in one section.
    """
    found: dict[str, Any] = {}
    for section, report in reports:
        place = found.setdefault(section, {}) if section else found
        place |= report()
    return found


def memory_bytes_max() -> int:
    """Return the most memory this process has had resident; 0 where /proc does not say.

    Not `ru_maxrss`: that is inherited over fork and exec, so it speaks of whoever started us.
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    kilobytes = next((line.split()[1] for line in lines if line.startswith("VmHWM:")), "0")
    return int(kilobytes) * 1024

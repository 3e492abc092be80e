"""The systemd units of a vehicle: enabled, and started (again) with the new files."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from backhaul_agent.errors import UnitsError

UNITS = ("backhaul-leaf.service", "backhaul-agent.service")
# As sd_booted(3) looks.
_BOOTED = Path("/run/systemd/system")
_WAIT_S_MAX = 90.0


def start_units(
    run: Callable[[Sequence[str]], tuple[int, str]] | None = None, booted: Path = _BOOTED
) -> None:
    """Enable both units and start them; those that run are restarted.

    ``run``: runs a command, returns its status and what it wrote to standard error.

    Raises:
        UnitsError: no systemd runs here, the units are not installed, or one does not start.
    """
    run = run or _run
    if not booted.is_dir():
        raise UnitsError("systemd does not run here", hint="start both by hand, as said above")
    for words in (["daemon-reload"], ["enable", *UNITS], ["restart", *UNITS]):
        status, said = run(["systemctl", *words])
        if status:
            raise UnitsError(
                f"systemctl {' '.join(words)} failed: {said.strip() or status}",
                hint="the units are in deploy/systemd; root may start them",
            )


def _run(words: Sequence[str]) -> tuple[int, str]:
    try:
        ended = subprocess.run(  # noqa: S603 - constants
            list(words), capture_output=True, text=True, timeout=_WAIT_S_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return ended.returncode, ended.stderr

"""The packages as they were, out of this repository's own history.

`BACKHAUL_OLDER=COMMIT` takes another commit.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.rig.parts import run_to_end

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
NO_PUSHES = "bb03ca16d1f4859a06403a7ad5f9e9c0676bda34"
"""The last commit before an agent or a hub knew of pushes."""
PACKAGES = ("agent", "hub", "codec")
YOUNGER = ("--page-port", "--websocket-port")
"""Options of `init`, each with a value, that a hub of before may not know."""


class ShallowCloneError(Exception):
    """This clone does not have the commit."""


def older_packages(directory: Path) -> str:
    """Write the packages as they were into a directory that is made; return their PYTHONPATH.

    Raises:
        ShallowCloneError: this clone does not have them.
    """
    commit = os.environ.get("BACKHAUL_OLDER", NO_PUSHES)
    asked = ["git", "-C", str(ROOT), "archive", commit, *PACKAGES]
    found = subprocess.run(asked, capture_output=True, check=False)
    if found.returncode:
        raise ShallowCloneError(f"it has no {commit}: {found.stderr.decode().strip()}")
    directory.mkdir()
    subprocess.run(["tar", "-x", "-C", str(directory)], input=found.stdout, check=True)
    return ":".join(str(directory / package) for package in PACKAGES)


async def run_mixed(before: Callable[[str], list[str]], arguments: list[str]) -> str:
    """Run a program to its end. ``before``: returns the words before a program that make it one of before."""
    words = before(Path(arguments[0]).name)
    if words and arguments[1] == "init":
        known = await run_to_end([*words, arguments[0], "init", "--help"])
        for option in YOUNGER:
            if option not in known:
                at = arguments.index(option)
                arguments = arguments[:at] + arguments[at + 2 :]
    return await run_to_end([*words, *arguments])

"""`make mutations`: plant each bug in a copy of the tree, and see a test go red for it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import click

from tests.mutations.mutants import MUTANTS

if TYPE_CHECKING:
    from collections.abc import Collection

    from tests.mutations.mutant import Mutant

ROOT = Path(__file__).parents[2]
PARTS = ("agent", "hub", "codec", "spark", ".")
TIMEOUT_S = 180.0
# What a summary says of a test that failed; one that could not even be collected is an ERROR.
FAILED = re.compile(r"^FAILED (\S+?(?:\[.*?\])?)(?: - .*)?$", re.MULTILINE)


class Ran(NamedTuple):
    """One run of pytest. ``failed``: ids; ``trouble``: why it says nothing, "" where it does."""

    failed: list[str]
    trouble: str
    seconds: float


@click.command()
@click.argument("names", nargs=-1)
def main(names: tuple[str, ...]) -> None:
    """Plant all bugs, or those named; exit 1 where one is not caught."""
    if unknown := set(names) - {mutant.name for mutant in MUTANTS}:
        raise click.ClickException(
            f"no mutant is called {', '.join(sorted(unknown))}; there are "
            + ", ".join(mutant.name for mutant in MUTANTS)
        )
    chosen = [mutant for mutant in MUTANTS if not names or mutant.name in names]
    # A test that is red anyway catches nothing.
    sound = run(None, dict.fromkeys(test for mutant in chosen for test in mutant.tests))
    if sound.trouble:
        raise click.ClickException(f"without any mutant: {sound.trouble}")
    print(f"without any mutant: {len(sound.failed)} red in {sound.seconds:.0f} s", *sound.failed)
    print("\n| planted bug | caught by | seconds |\n|---|---|---|", flush=True)
    survivors = 0
    for mutant in chosen:
        ran = run(mutant, mutant.tests, without=sound.failed)
        survivors += not ran.failed
        caught = f"`{ran.failed[0]}`" if ran.failed else f"NOBODY {ran.trouble}".strip()
        print(f"| {mutant.bug} (`{mutant.name}`) | {caught} | {ran.seconds:.0f} |", flush=True)
    print(f"\n{len(chosen) - survivors} of {len(chosen)} caught")
    sys.exit(survivors > 0)


def run(mutant: Mutant | None, tests: Collection[str], without: Collection[str] = ()) -> Ran:
    """Run tests in a fresh copy of the tree, with a bug in it up to the first that fails."""
    began_s = perf_counter()
    with tempfile.TemporaryDirectory(prefix="mutant-") as directory:
        tree = Path(directory) / "tree"
        copy(tree)
        options = []
        if mutant is not None:
            mutant.plant(tree)
            options = ["-x", *(f"--deselect={test}" for test in without)]
        said, trouble = pytest_in(tree, [*options, *tests])
    return Ran(FAILED.findall(said), trouble, perf_counter() - began_s)


def copy(tree: Path) -> None:
    """Copy what is git's or is going to be, as it stands in the working tree."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        source, target = ROOT / name, tree / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def pytest_in(tree: Path, arguments: list[str]) -> tuple[str, str]:
    """Return what pytest said in a tree, and why that says nothing of its tests ("": it does)."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(str(tree / part) for part in PARTS),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    process = subprocess.Popen(
        command,
        cwd=tree,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # servers that its tests have started, too
        return process.communicate()[0], f"(not done in {TIMEOUT_S:g} s)"
    if process.returncode in (0, 1):
        return said, ""
    return said, f"(pytest ended with {process.returncode}: {said.strip().splitlines()[-1:]})"


if __name__ == "__main__":
    main()

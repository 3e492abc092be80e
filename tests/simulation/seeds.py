"""Looking for a seed that finds a planted bug."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.simulation.invariants import ViolationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.run import Run

SEEDS_MAX = 400


def found(make: Callable[[int], Run], known: int = 0) -> str:
    """Run seed after seed until one is violated; return what was.

    `known`: a seed that has found it, to begin with. A change of the simulation may move it, and costs time alone.
    """
    for seed in (known, *range(SEEDS_MAX)):
        try:
            make(seed).go()
        except ViolationError as violation:
            return violation.what
    pytest.fail(f"{SEEDS_MAX} seeds did not find it")

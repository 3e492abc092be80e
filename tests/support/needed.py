"""What a test needs of the machine: skipped where it lacks, but in CI, where nothing may go untested."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def lacking(why: str) -> NoReturn:
    """Skip the test; fail where BACKHAUL_CI is set, as `.ci/run` sets it.

    Not `CI`, which others read, too: Hypothesis draws the same examples each time where it is set.
    """
    if os.environ.get("BACKHAUL_CI"):
        pytest.fail(why)
    pytest.skip(why)

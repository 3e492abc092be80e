"""The unit tests of the page's state, which Node runs."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from tests.support.needed import lacking
from tests.support.pins import ROOT


@pytest.mark.slow
def test_the_unit_tests_of_the_page_pass() -> None:
    if not (ROOT / "hub/page/node_modules").exists():
        lacking("the page's packages are not installed: tools/page says why")
    ran = subprocess.run(
        [ROOT / "tools/page", "tests"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
        timeout=120,
    )
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
    passed = re.search(r"^# pass (\d+)$", ran.stdout, re.MULTILINE)
    assert passed, ran.stdout[-2000:]
    assert int(passed[1]) >= 10

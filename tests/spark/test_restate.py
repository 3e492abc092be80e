"""A backlog of two days in the midst of live traffic, small: the benchmark's own checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backhaul_spark.tables import rewrite
from tests.support.restatement import Size, measure

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


def test_a_backlog_restates_what_it_touches_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewrite, "FILE_ROWS", 300)  # several files a day
    found = measure(tmp_path, Size(devices=6, late=2, hours=3, portions=2))
    assert found.late_points == 2 * 2 * 3 * 2 * 30
    # Each hour of each series anew, and each day in each portion that has any of it.
    assert found.restated >= 2 * 2 * (6 + 2)

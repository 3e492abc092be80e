"""A backlog of two days in the midst of live traffic, measured: see tests/support/restatement.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks import scratch
from benchmarks.figures import Figure, report
from tests.support.restatement import Measured, Size, measure

FULL, QUICK = Size(400, 50), Size(100, 10)


def run(*, quick: bool) -> dict[str, object]:
    """Measure, check, print the table and return the figures."""
    with scratch.directory("restate") as directory:
        return _figures(measure(directory, QUICK if quick else FULL))


def _figures(found: Measured) -> dict[str, Any]:
    mixed = found.late_points / len(found.mixed_s)
    return report(
        "A backlog of two days in the midst of live traffic",
        [
            Figure("points in all", found.points, "points"),
            Figure("of them late", found.late_points, "points"),
            Figure("windows created", found.created, "windows", note="by rollups with backlog"),
            Figure("windows restated", found.restated, "windows", note="by the same"),
            Figure("rollup, six live hours", float(np.median(found.live_s)), "s"),
            Figure(
                "rollup, a live hour and backlog",
                float(np.median(found.mixed_s)),
                "s",
                note=f"{mixed:,.0f} late points each",
            ),
            Figure(
                "rollup of all from scratch", found.scratch_s, "s", note="the same, bit for bit"
            ),
            Figure("written by rollups with backlog", found.rewritten_bytes / 1e6, "MB"),
            Figure("rollups", found.rollups_bytes / 1e6, "MB", note=f"{found.windows:,} windows"),
            Figure(
                "former versions",
                found.superseded_bytes / 1e6,
                "MB",
                note=f"{found.superseded:,} rows",
            ),
            Figure("all as known before the backlog", found.known_s, "s"),
            Figure("what changed since", found.restated_since_s, "s"),
        ],
    )

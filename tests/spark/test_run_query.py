"""A query is started again where Spark gave one of its own processes too little time, and only there. No JVM."""

from __future__ import annotations

from typing import Any

import pytest

from backhaul_spark.errors import JobFailed, Unreachable
from backhaul_spark.stream import run_query

LATE = "[STREAM_FAILED] Query [id = 1] terminated with exception: Python worker failed to connect back."


class Query:
    """A query that ends by itself, or as `said`."""

    def __init__(self, said: str = "") -> None:
        self._said = said

    def awaitTermination(self, timeout: int) -> bool:
        if self._said:
            raise RuntimeError(self._said)
        return True


def starts(*ends: str) -> int:
    """Run queries that end so, one after the other; return how many were started."""
    left = list(ends)

    def start() -> Any:
        return Query(left.pop(0))

    run_query(start, lambda: False)
    return len(ends) - len(left)


def test_a_process_that_was_slow_to_start_is_started_again() -> None:
    assert starts("", LATE) == 1
    assert starts(LATE, LATE, "", LATE) == 3


def test_one_that_never_starts_in_time_ends_the_query() -> None:
    with pytest.raises(JobFailed, match="connect back"):
        starts(*[LATE] * 5)


def test_what_has_another_reason_is_not_tried_again() -> None:
    with pytest.raises(JobFailed, match="no such table"):
        starts("no such table", "")
    with pytest.raises(Unreachable):
        starts("backhaul_spark.errors.Unreachable: cannot reach the hub", "")

"""A query is started again where Spark gave one of its own processes too little time, and only there. No JVM."""

from __future__ import annotations

from typing import Any

import pytest

from backhaul_spark.errors import JobFailedError, OptionError, UnreachableError
from backhaul_spark.ingest.stream import run_query

LATE = "[STREAM_FAILED] Query [id = 1] terminated with exception: Python worker failed to connect back."
CALLED = "An error occurred while calling o45.load.\n"


class Query:
    """A query that ends by itself, or as `said`."""

    def __init__(self, said: str = "") -> None:
        self._said = said

    def awaitTermination(self, timeout: int) -> bool:
        if self._said:
            raise RuntimeError(self._said)
        return True


def starts(*ends: str | Exception, stopping: bool = False) -> int:
    """Run queries that end so, or do not start for that reason; return how many were tried."""
    left = list(ends)

    def start() -> Any:
        end = left.pop(0)
        if isinstance(end, Exception):
            raise end
        return Query(end)

    run_query(start, lambda: stopping)
    return len(ends) - len(left)


def test_a_process_that_was_slow_to_start_is_started_again() -> None:
    assert starts("", LATE) == 1
    assert starts(LATE, LATE, "", LATE) == 3


def test_that_holds_while_the_query_is_started_too() -> None:
    late = RuntimeError(f"{CALLED}: SparkException: {LATE}")
    assert starts(late, LATE, "") == 3
    with pytest.raises(JobFailedError):
        starts(*[late] * 5)


def test_an_error_while_it_is_started_has_its_name() -> None:
    """Python's traceback is in what Spark raises: without a name, an operator would read all of it."""
    raised = "Traceback ...\nbackhaul_spark.errors.OptionError: credentials='x': expected a file"
    with pytest.raises(OptionError, match="expected a file"):
        starts(RuntimeError(raised), "")
    assert starts(RuntimeError("the JVM is gone"), stopping=True) == 1


def test_one_that_cannot_be_started_ends_with_the_reason_and_not_with_what_was_called() -> None:
    deep = (
        f"{CALLED}: no manager for s3a://lake\n\tat org.apache\n"
        "Caused by: Wrapped: no file system\n\tat org.apache\n"
        "Caused by: NotFound: S3AFileSystem\n\t... 12 more"
    )
    for raised, said in [
        (RuntimeError(f"{CALLED}: Refused: mkdirs failed\n\tat org"), "Refused: mkdirs failed"),
        (RuntimeError(deep), "no manager for s3a://lake; NotFound: S3AFileSystem"),
        (RuntimeError(CALLED), CALLED.strip()),
        (RuntimeError("the JVM is gone\nat all"), "the JVM is gone"),
        (RuntimeError(), "RuntimeError()"),
    ]:
        with pytest.raises(JobFailedError) as caught:
            starts(raised)
        assert str(caught.value) == said


def test_one_that_never_starts_in_time_ends_the_query() -> None:
    with pytest.raises(JobFailedError, match="connect back"):
        starts(*[LATE] * 5)


def test_what_has_another_reason_is_not_tried_again() -> None:
    with pytest.raises(JobFailedError, match="no such table"):
        starts("no such table", "")
    with pytest.raises(UnreachableError):
        starts("backhaul_spark.errors.UnreachableError: cannot reach the hub", "")

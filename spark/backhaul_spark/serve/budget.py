"""The time that one question may take."""

from __future__ import annotations

from backhaul_runtime.clock import Clock
from backhaul_spark.errors import QuestionError


class AnswerTime:
    """Counts from its making."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._end_s = clock.monotonic_s() + seconds

    def check(self) -> None:
        """Raise QuestionError where the time is over."""
        if self._clock.monotonic_s() > self._end_s:
            raise QuestionError(
                f"this takes longer than {self._seconds:g} s",
                "ask for a shorter time; if rollups are far behind: backhaul-spark rollup",
            )

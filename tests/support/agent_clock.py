"""A clock that tests move by hand."""

from __future__ import annotations


class FakeClock:
    """Both clocks stand still until `advance`; the wall clock can also be set wrong."""

    def __init__(self, time_ns: int = 1_700_000_000_123_456_789) -> None:
        self.wall_ns = time_ns
        self.now_s = 1000.0

    def now_ns(self) -> int:
        return self.wall_ns

    def monotonic_s(self) -> float:
        return self.now_s

    def steady_ns(self) -> int:
        return round(self.now_s * 1e9)

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
        self.wall_ns += round(seconds * 1e9)

"""What can go wrong with a measurement.

BenchmarkError
└── LostDataError

A missed aim is neither: it is printed, and the run goes on.
"""

from __future__ import annotations


class BenchmarkError(Exception):
    """Nothing was measured: a part did not do what it should in time."""


class LostDataError(BenchmarkError):
    """What was acknowledged is not there, or is there twice. No figure is worth anything then."""

    def __init__(self, where: str, *, missing: int, doubled: int) -> None:
        super().__init__(f"{where}: {missing} acknowledged points missing, {doubled} doubled")
        self.missing = missing
        self.doubled = doubled

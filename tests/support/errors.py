"""What can go wrong with a trial of the whole system, in a test or a benchmark.

TrialError
└── LostDataError
"""

from __future__ import annotations


class TrialError(Exception):
    """The trial came to nothing: a part did not do what it should in time."""


class LostDataError(TrialError):
    """What was acknowledged is not there, or is there twice. No figure is worth anything then."""

    def __init__(self, where: str, *, missing: int, doubled: int) -> None:
        super().__init__(f"{where}: {missing} acknowledged points missing, {doubled} doubled")
        self.missing = missing
        self.doubled = doubled

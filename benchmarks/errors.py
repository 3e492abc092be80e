"""What can go wrong with a measurement.

TrialError, of tests.support.errors
├── LostDataError
└── BenchmarkError

A missed aim is neither: it is printed, and the run goes on.
"""

from __future__ import annotations

from tests.support.errors import TrialError


class BenchmarkError(TrialError):
    """Nothing was measured: a part did not do what it should in time."""

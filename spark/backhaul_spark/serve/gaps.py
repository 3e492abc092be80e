"""Where readings are missing, and why: by the completeness reports of the hours. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from backhaul_spark.arrays import Ints
from backhaul_spark.serve.plan import HOUR_US, MINUTE_US

WAITING, EXPLAINED, SILENT = "waiting", "explained", "silent"
GAPS_MAX = 500
_STEPS = 5
"""Of so many usual steps without a reading nobody would have said that a chart goes on."""


class Gap(NamedTuple):
    """A time (µs since 1970, the end not included) in which readings are, or may be, missing, and the reason."""

    from_us: int
    to_us: int
    reason: str


class Hours:
    """The states of a device's hours.

    Args:
        states: by the beginning of each judged hour, µs since 1970.
    """

    def __init__(self, states: Iterable[tuple[int, str]]) -> None:
        self._states = dict(sorted(states))

    def doubtful(self, from_us: int, to_us: int) -> list[Gap]:
        """Return the hours of a range that are waiting or explained, those side by side as one."""
        found: list[Gap] = []
        for hour, state in self._states.items():
            begin, end = max(hour, from_us), min(hour + HOUR_US, to_us)
            if begin >= end or state not in (WAITING, EXPLAINED):
                continue
            if found and found[-1].to_us == begin and found[-1].reason == state:
                found[-1] = found[-1]._replace(to_us=end)
            else:
                found.append(Gap(begin, end, state))
        return found

    def complete_to(self, from_us: int) -> int | None:
        """Return up to when no hour of all since `from_us` waits; None: of the first of them nobody knows that."""
        end = None
        for hour, state in self._states.items():
            if hour + HOUR_US <= from_us:
                continue
            if state == WAITING or (end is not None and hour != end):
                break
            end = hour + HOUR_US
        return end

    @property
    def judged_to(self) -> int | None:
        """The end of the last hour that was judged; None: there is none."""
        return max(self._states, default=0) + HOUR_US if self._states else None


def silences(times_us: Ints, width_us: int, from_us: int, to_us: int) -> list[Gap]:
    """Return the stretches of a range without any reading that are much longer than the usual step.

    `times_us` is (n,) int64, us since 1970, ascending: of readings, or of buckets of `width_us` that have some. The range
    ends not later than now.
    """
    if not len(times_us):
        return [Gap(from_us, to_us, SILENT)] if from_us < to_us else []
    steps = np.diff(times_us)
    usual = float(np.median(steps)) if len(steps) else 0.0
    least = max(_STEPS * usual, 2 * width_us, MINUTE_US)
    begins = np.concatenate([[from_us], times_us + width_us])
    ends = np.concatenate([times_us, [to_us]])
    long = np.flatnonzero(ends - begins > least)
    return [Gap(int(begins[at]), int(ends[at]), SILENT) for at in long]


def gaps(hours: Hours, silent: Sequence[Gap], from_us: int, to_us: int) -> tuple[list[Gap], int]:
    """Return at most GAPS_MAX gaps by time, the longest of them; and how many are not among them.

    An hour that waits, or is explained, is one however many readings of it came. A silence is one where its hours
    are complete: the vehicle had nothing to say. After the last judged hour nobody knows yet, so it waits.
    """
    doubtful = hours.doubtful(from_us, to_us)
    found = list(doubtful)
    judged_to = hours.judged_to
    for gap in silent:
        for begin, end in _without(gap.from_us, gap.to_us, doubtful):
            cut = end if judged_to is None else min(max(judged_to, begin), end)
            found += [Gap(begin, cut, SILENT)] if begin < cut else []
            found += [Gap(cut, end, WAITING)] if cut < end else []
    longest = sorted(found, key=lambda gap: gap.from_us - gap.to_us)[:GAPS_MAX]
    return sorted(longest), len(found) - len(longest)


def _without(begin: int, end: int, taken: Sequence[Gap]) -> Iterator[tuple[int, int]]:
    """Yield the parts of a stretch that none of some gaps, by time, lies in."""
    for gap in taken:
        if gap.to_us <= begin or gap.from_us >= end:
            continue
        if begin < gap.from_us:
            yield begin, gap.from_us
        begin = gap.to_us
    if begin < end:
        yield begin, end

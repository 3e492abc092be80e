"""Hours of a vehicle that a run computes again, and their order. Pure.

From each touched hour on, until the state after an hour is what it was: then everything later is, too, up to the
next touched hour.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from backhaul_spark.places.tasks import Stretch

# Hours that one task computes of a device at most, and how many more it may go on by itself.
STRETCH_HOURS = 24
AHEAD_HOURS = 3


class HourChain:
    """One device in one round.

    Args:
        touched: hours since 1970 that readings have come into, one at least.

    Attributes:
        at: the hour that is next, None once all are computed.
        states: what was computed: after each hour the state.
        changed: of these hours those whose state became another.
    """

    def __init__(self, device: str, touched: Collection[int]) -> None:
        self.device = device
        self._touched = set(touched)
        self.at: int | None = min(touched)
        self._before: str | None = None
        self._asked: Stretch | None = None
        self.states: dict[int, str] = {}
        self.changed: set[int] = set()

    @property
    def lacks(self) -> bool:
        """Whether the table of states has to say the state before the next hour."""
        return self.at is not None and self._before is None

    def stretch(self, stored: Iterable[tuple[int, str]], before: str | None) -> Stretch:
        """Return the hours that a task computes next.

        Args:
            stored: hours from `at` on, ascending, with the state after each.
            before: the state before `at`, where it `lacks` it.
        """
        if self.at is None:
            raise AssertionError("everything is computed")
        hours: list[tuple[int, str | None, bool]] = []
        ahead = 0
        for hour, state in _merged(stored, sorted(h for h in self._touched if h >= self.at)):
            touched = hour in self._touched
            ahead = 0 if touched else ahead + 1
            if len(hours) == STRETCH_HOURS or ahead > AHEAD_HOURS:
                break
            hours.append((hour, state, touched))
        self._asked = Stretch(self.device, self._before or before, tuple(hours))
        return self._asked

    def take(self, states: Mapping[int, str], stored: Iterable[tuple[int, str]]) -> None:
        """Take in the result of the task: the state after each hour that it had to compute.

        Args:
            states: these.
            stored: as for `stretch`, from the last hour of the stretch on.
        """
        if self._asked is None:
            raise AssertionError("nothing was asked for")
        hours = self._asked.hours
        self.states |= states
        self.changed |= {
            hour for hour, known, _ in hours if hour in states and states[hour] != known
        }
        last, known, _ = hours[-1]
        later = [hour for hour in self._touched if hour > last]
        self._asked = None
        if last in self.changed:
            following = next((hour for hour, _ in stored if hour > last), None)
            self.at = min([*later, *([] if following is None else [following])], default=None)
            self._before = states[last]
            return
        self.at, self._before = min(later, default=None), None
        following = next((hour for hour, _ in stored if hour > last), None)
        if self.at is not None and (following is None or following >= self.at):
            self._before = states.get(last, known)


def _merged(
    stored: Iterable[tuple[int, str]], touched: list[int]
) -> Iterator[tuple[int, str | None]]:
    """Yield all hours ascending, with the state where one is stored."""
    left = touched[::-1]
    for hour, state in stored:
        while left and left[-1] < hour:
            yield left.pop(), None
        if left and left[-1] == hour:
            left.pop()
        yield hour, state
    while left:
        yield left.pop(), None

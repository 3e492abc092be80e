"""The times that config writes get: now, and never backwards for this writer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class WriteClock:
    """Gives stamps in ns since the Unix epoch, each greater than all it gave or was shown.

    ``now_ns``: the best there is of the hub's time. It may jump in both directions. ``reach`` hears
    what time it must be by now, so that a clock that does not know can catch up.
    """

    def __init__(
        self, now_ns: Callable[[], int], reach: Callable[[int], None] | None = None
    ) -> None:
        self.newest_ns = 0
        self._now_ns = now_ns
        self._reach = reach

    def seen(self, time_ns: int) -> None:
        """Take in a stamp that somebody else gave."""
        self.newest_ns = max(self.newest_ns, time_ns)

    def next(self, *, over_ns: int = 0) -> int:
        """Return a stamp for a write. ``over_ns``: a time that it must be greater than as well."""
        least = max(self.newest_ns, over_ns) + 1
        if self._reach is not None:
            self._reach(least)
        self.newest_ns = max(self._now_ns(), least)
        return self.newest_ns

    def pull_back(self, refused_ns: int, time_ns: int) -> None:
        """Forget a stamp that the hub refused for being in its future; go on from ``time_ns``."""
        if self.newest_ns >= refused_ns:
            self.newest_ns = time_ns

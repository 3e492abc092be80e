"""How often a device is answered where an answer costs the hub something. Pure."""

from __future__ import annotations

# A vehicle asks eight times at once when its link comes up, and then four times an hour.
BURST = 16
REFILL_S = 2.0
PENDING_MAX = 16_384
"""Questions that were received and not looked at; what comes beside is dropped, and asked again."""


# Of answers that were not asked for in time: so much of a pause is made up for.
AHEAD_S = 0.1


class RateLimiter:
    """How many answers each may still have: a bucket of `BURST`, one more in `REFILL_S`."""

    def __init__(self) -> None:
        self._full_at_s: dict[str, float] = {}

    def take(self, name: str, now_s: float) -> bool:
        """Return whether one may have an answer now, and count it; `now_s` is monotonic."""
        full_at_s = max(self._full_at_s.get(name, now_s), now_s)
        if full_at_s - now_s > (BURST - 1) * REFILL_S:
            return False
        self._full_at_s[name] = full_at_s + REFILL_S
        return True


class AnswerPace:
    """When the next of a row of answers is due, so many a second at most. Times are monotonic."""

    def __init__(self, per_s: float) -> None:
        self._step_s = 1 / per_s
        self._due_s = float("-inf")

    def wait_s(self, now_s: float) -> float:
        """Count one more, and return for how long it is to wait; 0 where it is due."""
        self._due_s = max(self._due_s + self._step_s, now_s - AHEAD_S)
        return max(0.0, self._due_s - now_s)

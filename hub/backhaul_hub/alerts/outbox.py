"""The next message of a channel, and its time. Pure.

Notices wait in their order. All that wait for a channel, up to `BUNDLE_MAX`, go in one message; hub.db knows which before it
leaves, so that a message that is sent again after a crash is the same message under the same id. A failure backs off, and
loses nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from backhaul_hub.alerts.plan import Notice

BUNDLE_MAX = 100
BACKOFF_S, BACKOFF_S_MAX = 5.0, 900.0


class NoticeMessage(NamedTuple):
    """The notices that go over a channel at once."""

    id: str
    """The same however often it is sent."""
    channel: str
    notices: Sequence[Notice]


class ChannelQueue:
    """The notices that wait for one channel.

    Args:
        interval_s: seconds between two messages.
        chance: returns a number from 0 to 1, for the jitter of pauses.
    """

    def __init__(self, name: str, interval_s: float, chance: Callable[[], float]) -> None:
        self.name = name
        self.error = ""
        """Why the last attempt failed; empty: it did not."""
        self.failures = 0
        """Attempts in a row that failed."""
        self._interval_s = interval_s
        self._chance = chance
        self._waiting: dict[str, Notice] = {}
        self._of_alert: dict[str, int] = {}
        self._message: NoticeMessage | None = None
        self._next_s = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def waiting(self) -> list[Notice]:
        """Return the waiting notices, the oldest first."""
        return list(self._waiting.values())

    def add(self, notices: Iterable[Notice]) -> None:
        """Take in notices, which hub.db has."""
        for each in notices:
            if each.id not in self._waiting:
                self._waiting[each.id] = each
                self._of_alert[each.alert.id] = self._of_alert.get(each.alert.id, 0) + 1

    def resume(self, message: str, notices: Sequence[Notice]) -> None:
        """Take in the message that may have left before a restart; its notices are among those that wait."""
        self._message = NoticeMessage(message, self.name, notices)

    def waits(self, alert: str) -> bool:
        """Tell whether something of an alert (id) waits."""
        return alert in self._of_alert

    def pause_s(self, now_s: float) -> float:
        """Return the seconds until the next attempt; 0: now. `now_s` is monotonic."""
        return max(0.0, self._next_s - now_s)

    def next(self, now_s: float) -> NoticeMessage | None:
        """Return the message to send now; None: nothing is, or not yet. It stays the same until it is sent."""
        if not self._waiting or now_s < self._next_s:
            return None
        if self._message is None:
            notices = self.waiting[:BUNDLE_MAX]
            self._message = NoticeMessage(message_id(notices), self.name, notices)
        return self._message

    def retry(self) -> None:
        """Let the next attempt be now."""
        self._next_s = 0.0

    def sent(self, now_s: float, error: str = "") -> None:
        """Take in that the message has left; `error`: a part of its receivers was refused, and why."""
        assert self._message is not None
        for each in self._message.notices:
            del self._waiting[each.id]
            left = self._of_alert[each.alert.id] - 1
            if left:
                self._of_alert[each.alert.id] = left
            else:
                del self._of_alert[each.alert.id]
        self._message = None
        self.error, self.failures = error, 0
        self._next_s = now_s + self._interval_s

    def failed(self, error: str, now_s: float, after_s: float = 0.0) -> float:
        """Take in that it has not, as far as is known; return the seconds until the next attempt.

        Args:
            error: why, and what mends it.
            now_s: monotonic.
            after_s: what the receiver asked for.
        """
        self.error = error
        full_s = min(BACKOFF_S * 2.0 ** min(self.failures, 20), BACKOFF_S_MAX)
        self.failures += 1
        # Of the second half a part by chance: two hubs do not come at the same moment again and again.
        pause_s = max(full_s * (0.5 + 0.5 * self._chance()), min(after_s, BACKOFF_S_MAX))
        self._next_s = now_s + pause_s
        return pause_s


def message_id(notices: Sequence[Notice]) -> str:
    """Return the name of a message: 32 hexadecimal digits."""
    said = "\0".join(each.id for each in notices)
    return hashlib.sha256(said.encode()).hexdigest()[:32]

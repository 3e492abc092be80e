"""Lanes that stand still though the link is up: of those the hub is told beside the stream. Pure.

A source at the hub may take nothing more and look well: it hears heartbeats and reports no lag (seen
where a hub of three servers lost two). What goes by the stream cannot say so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from backhaul_codec.kinds import Lane

PAUSE_S_MAX = 900.0
"""Between two times that the hub is told."""


@dataclass(slots=True)
class _Standing:
    watermark: int
    due_s: float
    pause_s: float


class StallReport:
    """Watches the watermarks of lanes of which more has been appended.

    Args:
        patience_s: how long a lane stands still before the hub is told; then less and less often.
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._standing: dict[Lane, _Standing] = {}

    def look(
        self, lanes: Iterable[tuple[Lane, int, int]], now_s: float, *, up: bool
    ) -> dict[Lane, int]:
        """Return the lanes that the hub is to be told of now, and the last seq of each in OUT.

        Args:
            lanes: name, last seq appended, watermark.
            now_s: monotonic.
            up: whether the link is known to be up; only time with the link up counts.
        """
        found = {}
        for lane, appended, watermark in lanes:
            known = self._standing.get(lane)
            if not up or appended <= watermark:
                self._standing.pop(lane, None)
            elif known is None or known.watermark != watermark:
                self._standing[lane] = _Standing(
                    watermark, now_s + self._patience_s, self._patience_s
                )
            elif now_s >= known.due_s:
                known.pause_s = min(2 * known.pause_s, PAUSE_S_MAX)
                known.due_s = now_s + known.pause_s
                found[lane] = appended
        return found

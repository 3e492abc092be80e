"""Points of many nodes, for tests of bundles and of dictionaries."""

from __future__ import annotations

from hypothesis import strategies as st

from backhaul_codec import Point
from tests.support import strategies

NOON = 1_700_000_000_000_000_000
POINTS = [
    Point("battery", "soc", NOON, 81.2),
    Point("gps", "speed", NOON, 12.5),
    Point("battery", "soc", NOON + 10**9, 81.1),
    Point("gps", "fix", NOON + 10**9, 2**63 + 5),
    Point("gps", "speed", NOON + 10**9, 12.5, tombstone=1, origin="hub"),
    Point("door", "soc", NOON + 10**9, "open", key="left"),
]


@st.composite
def bundles(draw: st.DrawFn) -> list[Point]:
    """Draw points of several nodes, which may have series of the same names, in any order."""
    some = draw(st.lists(strategies.frames(max_size=8), min_size=1, max_size=4))
    return draw(st.permutations([point for points in some for point in points]))

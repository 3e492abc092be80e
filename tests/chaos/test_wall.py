"""A vehicle's wall clock is off by what a fault says, from then on, and says when it jumped."""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING

from tests.chaos.wall import Wall

if TYPE_CHECKING:
    from pathlib import Path

DAY_NS = 86_400 * 10**9
NEAR_NS = DAY_NS // 24


def test_a_clock_is_right_until_it_jumps_and_again_when_it_is_set_right(tmp_path: Path) -> None:
    numbers = count()
    wall = Wall(tmp_path / "offset", lambda: next(numbers))
    off_ns = []
    for seconds in (0.0, -86_400.0, 0.0):
        wall.jump(seconds)
        off_ns.append(wall.clock.now_ns() - time.time_ns())
    assert [round(each / NEAR_NS) for each in off_ns] == [0, -24, 0]
    assert wall.jumps == [(0, 1), (2, 3), (4, 5)]
    assert [path.name for path in tmp_path.iterdir()] == ["offset"]

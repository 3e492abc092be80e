"""When a lane that stands still is told to the hub."""

from __future__ import annotations

from backhaul_agent.uplink.stall_report import PAUSE_S_MAX, StallReport


def test_a_lane_is_told_less_and_less_often_while_it_stands_still() -> None:
    standstill = StallReport(30.0)
    told = [
        now_s
        for now_s in range(2000)
        if standstill.look([("bulk", 9, 4)], now_s, up=True) == {"bulk": 9}
    ]
    assert told == [30, 90, 210, 450, 930, 930 + PAUSE_S_MAX]


def test_every_step_of_the_watermark_begins_anew() -> None:
    standstill = StallReport(30.0)
    for now_s in range(500):
        assert standstill.look([("bulk", 900, now_s // 20)], now_s, up=True) == {}
    assert standstill.look([("bulk", 901, 24)], 510.0, up=True) == {"bulk": 901}


def test_what_is_confirmed_owes_nothing() -> None:
    standstill = StallReport(30.0)
    for now_s in range(100):
        lanes = [("bulk", 9, 9), ("live", 3, 2)]
        assert standstill.look(lanes, now_s, up=True) == ({"live": 3} if now_s in {30, 90} else {})


def test_time_without_a_link_does_not_count() -> None:
    standstill = StallReport(30.0)
    for now_s in range(300):
        assert standstill.look([("bulk", 9, 4)], now_s, up=now_s % 30 != 29) == {}

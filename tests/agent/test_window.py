"""The flow-control windows, driven by a small model of a link."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_agent.window import (
    ROUND_S,
    SILENT_S,
    START_BYTES,
    WINDOW_MAX,
    WINDOW_MIN,
    WIRE_BYTES,
    LinkWindow,
    Sample,
)

SIZES = {"live": 150, "bulk": 2048}


@dataclass
class ModelLink:
    """A link of one rate and round trip, and a durable that keeps its window full of messages."""

    bytes_s: float
    trip_s: float
    message_bytes: float = 2048.0
    now_s: float = 0.0
    acked: int = 0
    sent_bytes: float = 0.0

    def run(self, window: LinkWindow, seconds: float, look_s: float = 0.25) -> list[int]:
        """Let time pass; return the windows of `bulk` that were in force, round by round."""
        used: list[int] = []
        end_s = self.now_s + seconds
        round_end_s = 0.0
        size = 0
        while self.now_s < end_s:
            if self.now_s >= round_end_s:
                self.acked += size
                size = window.window("bulk")
                used.append(size)
                self.sent_bytes += size * self.message_bytes
                start_s = max(round_end_s, self.now_s - look_s)
                round_end_s = start_s + size * self.message_bytes / self.bytes_s + self.trip_s
            window.sample(
                "bulk",
                Sample(self.now_s, self.acked, size, 1000, self.message_bytes - WIRE_BYTES),
            )
            self.now_s += look_s
        return used


@given(
    bytes_s=st.floats(1500, 60_000),
    trip_s=st.floats(0.0, 0.6),
    message_bytes=st.floats(300, 3000),
    guess=st.floats(1000, 1e6),
)
def test_whatever_the_link_it_is_filled_and_never_more_than_a_few_seconds_of_it_are_under_way(
    bytes_s: float, trip_s: float, message_bytes: float, guess: float
) -> None:
    window = LinkWindow(guess, dict(SIZES))
    link = ModelLink(bytes_s, trip_s, message_bytes)
    link.run(window, 120)
    used = link.run(window, 120)[1:]
    unit_s = message_bytes / bytes_s  # the window is counted in messages
    for size in used:
        assert size * unit_s <= ROUND_S * 1.25 + unit_s or size == WINDOW_MIN
        filled = size * unit_s / (size * unit_s + trip_s)
        assert filled >= 0.78 or size == WINDOW_MAX


def test_a_link_of_20_kbit_s_and_600_ms_is_filled_by_more_than_85_percent() -> None:
    window = LinkWindow(125_000, dict(SIZES))
    link = ModelLink(2500, 0.6, 1024)
    link.run(window, 60)
    link.sent_bytes = 0
    used = link.run(window, 300)
    assert link.sent_bytes / 300 / 2500 >= 0.85
    assert max(used) * 1024 <= 4.5 * 2500


def test_a_wrong_guess_does_not_flood_a_slow_link() -> None:
    window = LinkWindow(1e9, dict(SIZES))
    assert window.window("bulk") * SIZES["bulk"] <= START_BYTES
    used = ModelLink(2500, 0.6).run(window, 120)
    assert max(used) * 2048 <= 5 * 2500


def test_a_fast_link_gets_a_large_window_within_seconds() -> None:
    window = LinkWindow(1000, dict(SIZES))
    ModelLink(5e6, 0.05).run(window, 6, look_s=0.05)
    assert window.window("bulk") == WINDOW_MAX


def test_both_lanes_follow_what_one_has_measured() -> None:
    window = LinkWindow(125_000, dict(SIZES))
    ModelLink(2500, 0.6).run(window, 60)
    assert 40 <= window.window("live") <= 80  # four seconds in messages of 150 bytes


def test_a_steady_link_is_left_alone() -> None:
    window = LinkWindow(125_000, dict(SIZES))
    link = ModelLink(2500, 0.6)
    link.run(window, 60)
    assert len(set(link.run(window, 600))) == 1


def test_a_silent_link_is_begun_anew_with_little() -> None:
    window = LinkWindow(125_000, dict(SIZES))
    link = ModelLink(500_000, 0.05)
    link.run(window, 60)
    assert window.window("bulk") == WINDOW_MAX
    for _ in range(12):
        link.now_s += SILENT_S
        window.sample("bulk", Sample(link.now_s, link.acked, 10, 1000, 2000))
    assert window.window("bulk") == WINDOW_MIN


def test_a_link_with_nothing_under_way_is_not_silent() -> None:
    window = LinkWindow(125_000, dict(SIZES))
    before = window.window("bulk")
    for second in range(0, 1000, 10):
        assert window.sample("bulk", Sample(second, 7, 0, 0, 2000)) == before


def test_what_is_not_limited_by_the_window_says_nothing_about_the_link() -> None:
    window = LinkWindow(125_000, dict(SIZES))
    for second in range(100):
        window.sample("bulk", Sample(second, second, 1, 0, 2000))
    assert window.rate_bytes_s is None


def test_a_stream_that_was_made_anew_is_no_burst() -> None:
    window = LinkWindow(125_000, dict(SIZES))
    link = ModelLink(2500, 0.6)
    link.run(window, 60)
    before = window.window("bulk")
    link.acked = 0
    used = link.run(window, 60)
    assert max(used) <= before + 1


@pytest.mark.parametrize(("kbit", "live", "bulk"), [(20.0, 67, 5), (8.0, 27, 2), (1e6, 512, 512)])
def test_told_not_to_adapt_it_keeps_what_the_configuration_says(
    kbit: float, live: int, bulk: int
) -> None:
    window = LinkWindow(kbit * 125, dict(SIZES), adaptive=False)
    ModelLink(2500, 0.6).run(window, 60)
    assert (window.window("live"), window.window("bulk")) == (live, bulk)


def test_one_slow_message_of_the_other_lane_is_no_silence() -> None:
    window = LinkWindow(125_000, dict(SIZES))
    link = ModelLink(2500, 0.6)
    window.sample("live", Sample(0.0, 0, 0, 0, 150))
    link.run(window, 60)
    before = window.rate_bytes_s
    assert before is not None
    for _ in range(3):
        link.run(window, 60)
        window.sample("live", Sample(link.now_s, 0, 1, 0, 150))
        assert window.rate_bytes_s == pytest.approx(before, rel=0.3)


def test_a_window_grows_step_by_step_and_is_not_touched_for_little() -> None:
    window = LinkWindow(125_000, dict(SIZES))
    used = ModelLink(5e6, 0.5).run(window, 60)
    steps = [after / before for before, after in itertools.pairwise(used) if before != after]
    assert len(steps) > 2
    assert all(1.2 <= step <= 4.5 or step <= 1 / 1.2 for step in steps)

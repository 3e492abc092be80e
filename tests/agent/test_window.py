"""The flow-control windows, driven by a small model of a link."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_agent.leaf.link_window import (
    ROUND_S,
    SILENT_S,
    START_BYTES,
    WINDOW_MAX,
    WINDOW_MIN,
    WIRE_BYTES,
    LinkSample,
    LinkWindow,
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
                LinkSample(self.now_s, self.acked, size, 1000, self.message_bytes - WIRE_BYTES),
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
        window.sample("bulk", LinkSample(link.now_s, link.acked, 10, 1000, 2000))
    assert window.window("bulk") == WINDOW_MIN


def test_a_link_with_nothing_under_way_is_not_silent() -> None:
    window = LinkWindow(125_000, dict(SIZES))
    before = window.window("bulk")
    for second in range(0, 1000, 10):
        assert window.sample("bulk", LinkSample(second, 7, 0, 0, 2000)) == before


def test_what_is_not_limited_by_the_window_says_nothing_about_the_link() -> None:
    window = LinkWindow(125_000, dict(SIZES))
    for second in range(100):
        window.sample("bulk", LinkSample(second, second, 1, 0, 2000))
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
    window.sample("live", LinkSample(0.0, 0, 0, 0, 150))
    link.run(window, 60)
    before = window.rate_bytes_s
    assert before is not None
    for _ in range(3):
        link.run(window, 60)
        window.sample("live", LinkSample(link.now_s, 0, 1, 0, 150))
        assert window.rate_bytes_s == pytest.approx(before, rel=0.3)


def test_a_window_grows_step_by_step_and_is_not_touched_for_little() -> None:
    window = LinkWindow(125_000, dict(SIZES))
    used = ModelLink(5e6, 0.5).run(window, 60)
    steps = [after / before for before, after in itertools.pairwise(used) if before != after]
    assert len(steps) > 2
    assert all(1.2 <= step <= 4.5 or step <= 1 / 1.2 for step in steps)


@dataclass
class SharedLink:
    """A link that serves what is put into it in order; each lane with a backlog refills its window."""

    bytes_s: float
    trip_s: float
    lanes: list[str]
    message_bytes: float = 2048.0
    now_s: float = 0.0
    sent_bytes: float = 0.0
    under_way_bytes_max: float = 0.0

    def __post_init__(self) -> None:
        self.acked = dict.fromkeys(self.lanes, 0)
        self.free_s = 0.0  # when all that is in the link will have left it
        self.rounds: dict[str, tuple[float, int]] = {}  # by lane: when it is acknowledged, how much

    def run(self, window: LinkWindow, seconds: float, backlog: list[str]) -> None:
        """Let time pass, while these lanes have more to send than any window lets through."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            for lane in self.lanes:
                due_s, size = self.rounds.get(lane, (0.0, 0))
                if self.now_s >= due_s:
                    self.acked[lane] += size
                    self.rounds[lane] = (0.0, 0)
                    if lane in backlog:
                        self._fill(lane, window.window(lane))
                waiting = 1000 if lane in backlog else 0
                seen = LinkSample(
                    self.now_s, self.acked[lane], self.rounds[lane][1], waiting,
                    self.message_bytes - WIRE_BYTES,
                )  # fmt: skip
                window.sample(lane, seen)
            self.under_way_bytes_max = max(
                self.under_way_bytes_max, (self.free_s - self.now_s) * self.bytes_s
            )
            self.now_s += 0.25

    def _fill(self, lane: str, size: int) -> None:
        self.free_s = max(self.free_s, self.now_s) + size * self.message_bytes / self.bytes_s
        self.rounds[lane] = (self.free_s + self.trip_s, size)
        self.sent_bytes += size * self.message_bytes


NODE_LANES = [f"n_node{number}" for number in range(8)]


def node_window(guess_bytes_s: float = 125_000) -> LinkWindow:
    return LinkWindow(guess_bytes_s, {"live": 150, "bulk": 2048, **dict.fromkeys(NODE_LANES, 2048)})


def test_many_lanes_with_a_backlog_each_divide_one_window() -> None:
    window, link = node_window(), SharedLink(25_000, 0.6, NODE_LANES)
    link.run(window, 60, NODE_LANES)
    link.sent_bytes = link.under_way_bytes_max = 0
    acked = dict(link.acked)
    link.run(window, 120, NODE_LANES)
    assert link.under_way_bytes_max <= 1.25 * ROUND_S * 25_000
    assert link.sent_bytes / 120 / 25_000 >= 0.8
    shares = [link.acked[lane] - acked[lane] for lane in NODE_LANES]
    assert min(shares) > 0.5 * max(shares), "no lane starves"


def test_a_lane_that_is_alone_with_its_backlog_fills_the_link() -> None:
    window, link = node_window(), SharedLink(25_000, 0.6, NODE_LANES)
    link.run(window, 60, NODE_LANES)
    link.run(window, 60, NODE_LANES[:1])
    link.sent_bytes = 0
    link.run(window, 120, NODE_LANES[:1])
    assert link.sent_bytes / 120 / 25_000 >= 0.8


def test_lanes_without_a_backlog_keep_so_little_that_all_of_them_together_are_no_flood() -> None:
    window, link = node_window(), SharedLink(25_000, 0.6, NODE_LANES)
    link.run(window, 120, NODE_LANES[:1])
    idle = sum(window.window(lane) for lane in NODE_LANES[1:]) * link.message_bytes
    assert idle <= 1.25 * ROUND_S * 25_000
    link.under_way_bytes_max = 0
    link.run(window, 30, NODE_LANES)  # an outage is over: all of them at once
    assert link.under_way_bytes_max <= 2.5 * ROUND_S * 25_000


def test_many_lanes_begin_with_one_start_among_them() -> None:
    window = node_window()
    others = [lane for lane in window.lanes() if lane != "live"]
    minimum = WINDOW_MIN * 2048
    assert sum(max(window.window(lane) * 2048, minimum) for lane in others) <= max(
        START_BYTES, len(others) * minimum
    )
    assert window.window("live") == LinkWindow(125_000, dict(SIZES)).window("live")


def test_on_a_very_slow_link_each_of_many_lanes_keeps_the_least_window() -> None:
    window, link = node_window(), SharedLink(2500, 0.6, NODE_LANES)
    link.run(window, 300, NODE_LANES)
    assert {window.window(lane) for lane in NODE_LANES} == {WINDOW_MIN}
    assert all(link.acked[lane] > 0 for lane in NODE_LANES)
    assert window.window("live") > 10 * WINDOW_MIN

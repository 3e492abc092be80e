"""A file on its way over modelled links: the pace finds the link, and nothing is lost or asked twice."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_agent.artifacts.transfer_state import (
    ANSWER_S_MAX,
    FLOOR_BYTES,
    QUEUE_S,
    ByteSpan,
    TransferState,
    TransferWindow,
)
from backhaul_codec.protocol.blobs import PIECE_BYTES_MAX, WINDOW_BYTES_MAX


@dataclass
class Line:
    """A link that carries pieces one after another; `busy_s` of somebody else's lie before them."""

    rate_bytes_s: float
    round_trip_s: float
    busy_s: float = 0.0
    now_s: float = 0.0
    free_s: float = 0.0
    under_way: deque[tuple[float, ByteSpan]] = field(default_factory=deque)
    most_bytes: int = 0

    def run(self, state: TransferState, seconds: float) -> int:
        """Let the time pass; return what arrived."""
        end_s, before = self.now_s + seconds, state.done
        while self.now_s < end_s and state.done < state.size:
            while span := state.next(self.now_s):
                start_s = max(self.free_s, self.now_s + self.busy_s)
                self.free_s = start_s + (span.length + 60) / self.rate_bytes_s
                self.under_way.append((self.free_s + self.round_trip_s, span))
            waiting = sum(span.length for _, span in self.under_way)
            self.most_bytes = max(self.most_bytes, waiting)
            self.now_s, span = self.under_way.popleft()
            assert state.arrived(self.now_s, span.offset, span.length)
        return state.done - before


def state(size: int = 1 << 30, done: int = 0) -> TransferState:
    return TransferState(size, done, TransferWindow())


@pytest.mark.parametrize(
    ("rate_bytes_s", "round_trip_s"), [(2500.0, 0.6), (12_500.0, 0.3), (50_000.0, 0.05)]
)
def test_a_slow_link_is_filled_and_what_is_new_waits_for_little(
    rate_bytes_s: float, round_trip_s: float
) -> None:
    line, moving = Line(rate_bytes_s, round_trip_s), state()
    line.run(moving, 60)
    line.most_bytes = 0
    carried = line.run(moving, 120)
    assert carried / 120 / rate_bytes_s > 0.75
    # A piece of the first round trip is in it too, which was taken for delay.
    assert line.most_bytes / rate_bytes_s < QUEUE_S + 2 * round_trip_s + 0.6


def test_a_fast_link_gets_less_than_a_chunk_and_never_more() -> None:
    line, moving = Line(1e8, 0.001), state()
    line.run(moving, 10)
    assert moving.pace.window == line.most_bytes == WINDOW_BYTES_MAX
    assert moving.pace.piece == PIECE_BYTES_MAX


def test_behind_a_backlog_the_floor_is_left_and_the_window_comes_back() -> None:
    line, moving = Line(12_500.0, 0.1), state()
    line.run(moving, 30)
    assert moving.pace.window > 4 * FLOOR_BYTES
    line.busy_s = 3.6
    line.run(moving, 60)
    assert moving.pace.window == FLOOR_BYTES
    line.busy_s = 0.0
    line.run(moving, 30)
    assert moving.pace.window > 4 * FLOOR_BYTES


def test_the_floor_is_a_twentieth_of_a_fast_link() -> None:
    pace = TransferWindow()
    pace.link_carries(125_000.0)
    assert pace.window == 25_000
    pace.lost()
    assert pace.window == 25_000
    pace.link_carries(1e9)
    assert pace.window == WINDOW_BYTES_MAX


@given(
    size=st.integers(0, 40_000),
    done=st.integers(0, 10_000),
    seed=st.integers(0, 1 << 30),
    loss=st.sampled_from([0.0, 0.1, 0.5]),
)
def test_over_any_line_everything_arrives_once_in_order(
    size: int, done: int, seed: int, loss: float
) -> None:
    chance = random.Random(seed)
    moving = state(size, done=min(done, size))
    first = moving.done
    now_s, kept = 0.0, first
    for _ in range(5000):
        asked = []
        while span := moving.next(now_s):
            asked.append(span)
        now_s += 0.1
        answers = [span for span in asked if chance.random() >= loss]
        for span in answers + answers[: chance.randrange(2)]:  # one perhaps twice
            if moving.arrived(now_s, span.offset, span.length):
                assert span.offset == kept
                kept += span.length
        if moving.done == size:
            break
        if not answers or loss:
            now_s += ANSWER_S_MAX
            if moving.overdue(now_s):
                moving.lost()
    assert kept == moving.done == size
    if not loss:
        assert moving.asked_bytes == size - first


def test_after_a_cut_a_window_is_asked_again_and_no_more() -> None:
    line, moving = Line(1e7, 0.001), state(size=50_000_000)
    line.run(moving, 2)
    assert moving.done < moving.size
    while moving.next(line.now_s):
        pass
    before = moving.asked_bytes
    moving.lost()
    line.under_way.clear()
    line.run(moving, 1000)
    assert moving.done == moving.size
    assert 0 < moving.asked_bytes - moving.size <= WINDOW_BYTES_MAX
    assert before < moving.size


def test_what_comes_late_after_a_loss_makes_nothing_be_asked_again() -> None:
    moving = state()
    moving.pace.link_carries(1e6)
    spans = []
    while span := moving.next(0.0):
        spans.append(span)
    assert len(spans) > 2
    assert not moving.arrived(1.0, *spans[1])
    again = moving.next(1.0)
    assert again is not None
    assert again.offset == 0
    asked = moving.asked_bytes
    for span in spans[2:]:
        assert not moving.arrived(1.1, *span)
    assert moving.asked_bytes == asked
    assert moving.arrived(1.2, *again)


def test_an_upload_goes_by_what_the_hub_holds() -> None:
    moving = state(size=4096)
    assert moving.next(0.0) == ByteSpan(0, 1024)
    assert moving.next(0.0) == ByteSpan(1024, 1024)
    assert moving.next(0.0) is None
    assert moving.held(0.5, 2048)
    assert moving.next(0.5) == ByteSpan(2048, 1024)
    assert not moving.held(0.6, 2048)
    assert not moving.held(0.7, 1024), "the hub was started again and has lost some"
    assert moving.next(0.7) == ByteSpan(1024, 1024)
    assert not moving.held(0.8, 4096), "an earlier attempt had got further"
    assert moving.done == 4096


def test_an_answer_that_does_not_come_is_overdue() -> None:
    moving = state()
    assert not moving.overdue(1e9)
    moving.next(5.0)
    assert not moving.overdue(5.0 + ANSWER_S_MAX - 0.1)
    assert moving.overdue(5.0 + ANSWER_S_MAX)
    moving.lost()
    assert not moving.overdue(1e9)
    span = moving.next(100.0)
    assert span is not None
    assert moving.arrived(102.0, *span)
    moving.next(102.0)
    assert not moving.overdue(109.9), "four rounds of two seconds"
    assert moving.overdue(110.0)

"""History's deciding part: order, limits, pieces, requests."""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backhaul_agent.cli.values.history import read_time
from backhaul_agent.errors import RefusedError
from backhaul_agent.history import merge as history
from backhaul_agent.history.merge import CHUNK_POINTS, POINTS_MAX, Merge, chunks, read_request
from backhaul_codec import Opaque, Value
from backhaul_codec.state.json_values import value_from_json
from tests.support.agent_clock import FakeClock

if TYPE_CHECKING:
    from backhaul_runtime.clock import Clock

Runs = list[list[int]]


def merged(runs: Runs, limit: int) -> tuple[list[tuple[int, Any]], int | None]:
    """Feed runs, each a list of times, as a reader would; the value says whose a point is."""
    runs = sorted((run for run in runs if run), key=min)
    merge = Merge(limit)
    found: list[tuple[int, Any]] = []
    for number, run in enumerate(runs):
        merge.add((run, [f"{number}.{at}" for at in range(len(run))]))
        later = [min(other) for other in runs[number + 1 :]]
        times, values = merge.take(min(later, default=None))
        found += zip(times, values, strict=True)
        if merge.done:
            break
    else:
        times, values = merge.take(None)
        found += zip(times, values, strict=True)
    assert merge.points == len(found)
    return found, merge.next_ns


@given(
    st.lists(st.lists(st.integers(0, 30), max_size=12), max_size=12),
    st.integers(1, 40),
)
@example([[0, 0, 1], [0]], 1)
@example([[0, 0, 2], [1]], 1)
def test_points_come_in_order_of_time_and_a_next_request_goes_on_there(
    runs: Runs, limit: int
) -> None:
    """Whatever overlaps: all asked for in turns is exactly all there is, each once."""
    everything = sorted(time for run in runs for time in run)
    got: list[int] = []
    start: int | None = -1
    for _ in range(len(everything) + 1):
        left = [[time for time in run if time >= (start or -1)] for run in runs]
        found, start = merged(left, limit)
        times = [time for time, _ in found]
        assert times == sorted(times)
        assert len(set(found)) == len(found)
        # The limit is passed only where everything given out has one stamp.
        assert len(times) <= limit or len(set(times)) == 1
        got += times
        if start is None:
            break
    assert got == everything


def test_runs_that_do_not_overlap_are_passed_on_at_once() -> None:
    merge = Merge(100)
    merge.add((array("q", [1, 2, 3]), [1.0, 2.0, 3.0]))
    assert merge.take(4) == ([1, 2, 3], [1.0, 2.0, 3.0])
    merge.add((array("q", [4, 6]), [4.0, 6.0]))
    assert merge.take(5) == ([4], [4.0])
    assert merge.take(None) == ([6], [6.0])


def test_only_what_may_still_be_given_out_is_held() -> None:
    merge = Merge(10)
    for start in range(1000):
        merge.add(([start + 7 * at for at in range(500)][::-1], [0.0] * 500))
        merge.take(0)
    assert len(merge._times) < 10_000
    times, _ = merge.take(None)
    assert list(times) == [0, 1, 2, 3, 4, 5, 6, 7, 7]
    assert merge.next_ns == 8


def test_large_values_that_overlap_are_refused_before_they_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(history, "PENDING_BYTES_MAX", 10_000)
    merge = Merge(1000)
    merge.add(([1, 5], ["x" * 6000, "y"]))
    assert merge.take(2)[0] == [1]
    merge.add(([2], [b"x" * 6000]))
    with pytest.raises(RefusedError, match="shorter time") as caught:
        merge.add(([3], [Opaque(9, b"x" * 6000)]))
    assert caught.value.code == "too_large"


def test_an_answer_that_must_stop_says_where_the_next_goes_on() -> None:
    merge = Merge(100)
    merge.add(([1, 9], [1.0, 9.0]))
    assert merge.take(2)[0] == [1]
    merge.stop(2)
    assert merge.done
    assert merge.next_ns == 2
    end = Merge(100)
    end.stop(None)
    assert not end.done


VALUES: list[Value] = [
    1.5, math.nan, math.inf, -3, 1 << 63, "text", b"\x00\xff", Opaque(6, b'{"a": [1]}'),
    Opaque(9, b"raw"),
]  # fmt: skip


@given(st.lists(st.sampled_from(VALUES), max_size=50))
def test_every_value_comes_back_from_its_piece(values: list[Value]) -> None:
    pieces = list(chunks((list(range(len(values))), values)))
    assert [time for piece in pieces for time in piece["times"]] == list(range(len(values)))
    back = [value_from_json(shown, piece["dtype"]) for piece in pieces for shown in piece["values"]]
    for value, again in zip(values, back, strict=True):
        if isinstance(value, Opaque) and value.dtype == 6:
            assert again == Opaque(6, b'{"a":[1]}')
        else:
            assert repr(again) == repr(value)


def test_pieces_are_small() -> None:
    many = list(chunks((range(CHUNK_POINTS * 2 + 1), [1.0] * (CHUNK_POINTS * 2 + 1))))
    assert [len(piece["times"]) for piece in many] == [CHUNK_POINTS, CHUNK_POINTS, 1]
    large = list(chunks((range(10), ["x" * 100_000] * 10)))
    assert max(len(piece["times"]) for piece in large) == 2


def test_a_request_is_read() -> None:
    asked = read_request(
        b'{"node": "n", "type": "t", "key": "k", "from": "1970-01-01T00:00:01Z", "to": 5, '
        b'"limit": 7}'
    )
    assert asked == ("n", "t", "k", 1_000_000_000, 5, 7)
    short = read_request(b'{"node": "n", "type": "t"}')
    assert (short.from_ns, short.to_ns) == (-(1 << 63), (1 << 63) - 1)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", "bad_json"),
        (b"\xff", "bad_json"),
        (b'{"node": "n"}', "bad_field"),
        (b'{"node": "", "type": "t"}', "bad_field"),
        (b'{"node": "n", "type": "t", "what": 1}', "bad_field"),
        (b'{"node": "n", "type": "t", "limit": 0}', "bad_field"),
        (b'{"node": "n", "type": "t", "limit": %d}' % (POINTS_MAX + 1), "bad_field"),
        (b'{"node": "n", "type": "t", "from": "yesterday"}', "bad_time"),
        (b'{"node": "n", "type": "t", "to": 9223372036854775808}', "bad_time"),
    ],
)
def test_a_bad_request_is_refused_with_a_code(body: bytes, code: str) -> None:
    with pytest.raises(RefusedError) as caught:
        read_request(body)
    assert caught.value.code == code


def test_times_on_a_command_line() -> None:
    clock: Clock = FakeClock(10**18)
    assert read_time("now", clock) == 10**18
    assert read_time("90s", clock) == 10**18 - 90 * 10**9
    assert read_time("1.5h", clock) == 10**18 - 5400 * 10**9
    assert read_time("-5", clock) == -5
    assert read_time("1970-01-01T00:00:01+00:00", clock) == 10**9
    with pytest.raises(RefusedError, match="15m"):
        read_time("soon", clock)

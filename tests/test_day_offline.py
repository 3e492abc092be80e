"""The account of a day offline sees what is missing, doubled or changed; and what memory grows by."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from backhaul_codec import Point, decode, encode_frame, restamp
from tests.support.day_memory import MOMENTS, grown_mb
from tests.support.day_points import NODE, POINTS_A_SECOND, SIGNALS, Tally, frames
from tests.support.errors import LostDataError
from tests.support.memory_watch import MemoryWatch
from tests.support.numbered_points import FIRST_NS, PASS_NS

SECONDS = 7


@pytest.fixture
def sent() -> list[bytes]:
    """The frames of some seconds, placed as an agent places them."""
    return addressed(frames(0, SECONDS))


def addressed(bodies: list[bytes], first: int = 1) -> list[bytes]:
    return [restamp(body, epoch=1, seq=seq) for seq, body in enumerate(bodies, first)]


def tally_of(bodies: list[bytes]) -> Tally:
    tally = Tally(SECONDS)
    for body in bodies:
        tally.take([body])
    return tally


def require_lost(tally: Tally, *, missing: int, doubled: int) -> None:
    with pytest.raises(LostDataError) as found:
        tally.require_exact("UP")
    assert (found.value.missing, found.value.doubled) == (missing, doubled)


def test_a_second_is_ten_passes_over_twenty_signals() -> None:
    points = decode(frames(3, 1)[0], node=NODE).points
    assert len(points) == POINTS_A_SECOND == 200
    first = FIRST_NS + 30 * PASS_NS
    assert [point.time for point in points[::20]] == [first + n * 100_000_000 for n in range(10)]
    assert [point.type for point in points[:20]] == [signal.type for signal in SIGNALS]


def test_the_next_hour_reads_alike_under_its_own_stamps() -> None:
    first, later = (decode(frames(s, 1)[0], node=NODE).points for s in (5, 3605))
    assert later == [replace(point, time=point.time + 3600 * 10**9) for point in first]
    tally = Tally(3606)
    tally.take(addressed(frames(3600, 6)))
    assert (tally.points, tally.foreign) == (6 * POINTS_A_SECOND, 0)


def test_all_of_it_in_any_order_is_exact(sent: list[bytes]) -> None:
    tally = Tally(SECONDS)
    tally.take(sent[4:])
    tally.take(sent[:4])
    tally.require_exact("UP")
    assert (tally.points, tally.repeats) == (SECONDS * POINTS_A_SECOND, 0)


def test_a_frame_that_is_not_there_is_missed(sent: list[bytes]) -> None:
    require_lost(tally_of(sent[:3] + sent[4:]), missing=POINTS_A_SECOND, doubled=0)


def test_a_frame_again_under_its_place_is_a_repeat(sent: list[bytes]) -> None:
    tally = tally_of([*sent, sent[2]])
    tally.require_exact("UP")
    assert tally.repeats == 1


def test_readings_again_under_another_place_are_doubled(sent: list[bytes]) -> None:
    again = addressed([sent[2]], first=100)
    require_lost(tally_of(sent + again), missing=0, doubled=POINTS_A_SECOND)
    together = Tally(SECONDS)
    together.take(sent + again)
    require_lost(together, missing=0, doubled=POINTS_A_SECOND)


@pytest.mark.parametrize(
    "changed",
    [
        Point(NODE, "soc", FIRST_NS, 1.5),
        Point(NODE, "socks", FIRST_NS, 90.0),
        Point(NODE, "soc", FIRST_NS + 1, 90.0),
        Point(NODE, "soc", FIRST_NS - PASS_NS, 90.0),
        Point(NODE, "soc", FIRST_NS + 10 * SECONDS * PASS_NS, 90.0),
        Point(NODE, "soc", FIRST_NS, "90"),
    ],
    ids=["value", "series", "between passes", "before the day", "after the day", "text"],
)
def test_a_reading_that_was_changed_is_missing_and_foreign(
    sent: list[bytes], changed: Point
) -> None:
    first = decode(sent[0], node=NODE).points
    assert first[0] == Point(NODE, "soc", FIRST_NS, 90.0)
    sent[0] = encode_frame([changed, *first[1:]], epoch=1, seq=1)
    require_lost(tally_of(sent), missing=1, doubled=1)


def test_memory_that_grows_with_what_waits_is_seen() -> None:
    """Of the processes one grows by 7 MB at each look, the other is where it was."""
    looks = count()
    watch = MemoryWatch({"grows": 1, "flat": 2}, lambda pid: 7.0 * next(looks) if pid == 1 else 50)
    stages = [f"{moment} waiting" for moment in MOMENTS.values()]
    stages += [f"draining to {moment}" for moment in MOMENTS.values()]
    for stage in ("started", "keeping", *stages, "drained"):
        watch.begin(stage)
    assert [grown_mb(watch, name) for name in ("grows", "flat")] == [14.0, 0.0]


def test_the_peak_of_a_stage_is_of_no_other_whose_name_begins_so() -> None:
    looks = iter([9.0, 5.0])
    watch = MemoryWatch({"one": 1}, lambda _: next(looks))
    watch.begin("draining to 1/24")
    watch.begin("draining to 1/2")
    assert watch.peak("one", "draining to 1/2") == 5


def test_a_stage_that_goes_on_keeps_its_looks() -> None:
    looks = count(1)
    watch = MemoryWatch({"one": 1}, lambda _: float(next(looks)))
    for stage in ("keeping", "1/24 waiting", "keeping"):
        watch.begin(stage)
    watch.look()
    assert watch.peak("one", "keeping") == watch.last("one", "keeping") == watch.peak("one") == 4
    assert watch.last("one", "1/24 waiting") == 2

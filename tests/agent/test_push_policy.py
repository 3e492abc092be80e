"""When a lane is pushed, and when it is sourced again."""

from __future__ import annotations

import pytest

from backhaul_agent.push.policy import (
    AWAKE_S_MIN,
    BEHIND_LOOKS_MAX,
    BURST_BYTES_MAX,
    FIRST_BYTES_MAX,
    FIRST_LOOKS,
    OWED_MAX,
    PATIENCE_S,
    SETTLED_S,
    TERSE_PATIENCE_S,
    UNMEASURED_BYTES,
    WAIT_S_MAX,
    PushPolicy,
    TrickleView,
)

EPOCH = 7


class Vehicle:
    """One lane that is looked at once a second; the hub confirms what it is told to."""

    def __init__(self) -> None:
        self.policy = PushPolicy(10_000)
        self.now_s = 100.0
        self.appended = self.watermark = 0
        self.owed_bytes = 0
        self.runs = True
        self.behind = False
        self.news = 0

    def look(self, seconds: float = 1.0) -> None:
        for _ in range(int(seconds)):
            self.now_s += 1.0
            view = TrickleView(
                self.appended, self.watermark, self.owed_bytes, self.runs, self.behind
            )
            self.news += self.policy.look(EPOCH, {"bulk": view}, self.now_s)

    def trickle(self, seconds: int, *, confirmed: bool = True) -> None:
        for _ in range(seconds):
            self.appended += 1
            if confirmed:
                self.watermark = self.appended - 1
            self.look()

    def sleep(self) -> Vehicle:
        self.trickle(int(SETTLED_S) + 2)
        self.policy.heard(["bulk"], self.now_s)
        assert self.policy.asleep("bulk")
        return self


def test_a_calm_lane_is_pushed_from_the_next_message_on_and_sleeps_by_leave_of_the_hub() -> None:
    it = Vehicle()
    it.trickle(int(SETTLED_S))
    assert it.policy.word == {}
    it.trickle(1)
    assert it.policy.word == {"bulk": it.appended}
    assert it.news == 1
    assert not it.policy.pushes("bulk", it.appended, 100, 0)
    assert it.policy.pushes("bulk", it.appended + 1, 100, 0)
    assert it.policy.unsettled
    assert not it.policy.asleep("bulk")
    it.policy.heard(["bulk"], it.now_s)
    assert it.policy.asleep("bulk")
    assert not it.policy.unsettled
    it.trickle(600)
    assert it.policy.asleep("bulk")
    assert it.news == 1


def test_a_lane_with_a_backlog_or_that_does_not_run_is_not_asked_to_sleep() -> None:
    behind, many_bytes, stands = Vehicle(), Vehicle(), Vehicle()
    behind.appended = OWED_MAX + 1
    many_bytes.appended, many_bytes.owed_bytes = 1, 6_000
    stands.runs = False
    for it in (behind, many_bytes, stands):
        it.look(60)
        assert it.policy.word == {}


def test_a_watermark_that_stands_still_wakes_the_lane() -> None:
    it = Vehicle().sleep()
    it.watermark = it.appended
    it.look(600)
    assert it.policy.asleep("bulk"), "nothing is owed"
    it.appended += 1
    it.look(int(PATIENCE_S))
    assert it.policy.asleep("bulk")
    it.look(1)
    assert not it.policy.asleep("bulk")
    assert it.policy.word == {}
    assert not it.policy.pushes("bulk", it.appended + 1, 100, 0)
    assert it.policy.wakes == 1


def test_of_a_hub_that_tells_watermarks_seldom_more_patience_is_had() -> None:
    it = Vehicle().sleep()
    it.policy.patience_s = TERSE_PATIENCE_S
    it.watermark = it.appended
    it.appended += 1
    it.look(1 + int(TERSE_PATIENCE_S))
    assert it.policy.asleep("bulk")
    it.look(1)
    assert not it.policy.asleep("bulk")


def test_more_than_may_be_under_way_wakes_a_lane() -> None:
    it = Vehicle().sleep()
    it.owed_bytes = 10_001
    it.look()
    assert it.policy.word == {}


def test_a_lane_that_does_not_run_is_woken() -> None:
    it = Vehicle().sleep()
    it.runs = False
    it.look()
    assert it.policy.word == {}


def test_a_lane_that_is_seen_behind_for_a_moment_sleeps_on() -> None:
    """With each message it is, until the leaf server has answered."""
    it = Vehicle().sleep()
    for _ in range(10):
        it.behind = True
        it.look(BEHIND_LOOKS_MAX)
        it.behind = False
        it.trickle(1)
    assert it.policy.asleep("bulk")
    it.behind = True
    it.look(BEHIND_LOOKS_MAX + 1)
    assert it.policy.word == {}
    it.look(60)
    assert it.policy.word == {}, "nor is it asked to sleep"


def test_a_burst_is_not_pushed_to_its_end_and_wakes_the_lane() -> None:
    """It may be confirmed, or lost, before the lane is looked at."""
    it = Vehicle().sleep()
    assert it.policy.pushes("bulk", it.appended + 1, 100, 10_000)
    assert not it.policy.pushes("bulk", it.appended + 2, 100, 10_001)
    assert not it.policy.pushes("bulk", it.appended + 3, 100, 100), "the one before was not pushed"
    it.look()
    assert it.policy.word == {}
    assert it.policy.wakes == 1


def test_what_the_hub_asks_for_again_is_pushed_until_it_is_much_and_that_wakes_the_lane() -> None:
    it = Vehicle()
    it.policy.carries(1_000.0)
    assert not it.policy.pushes_again("bulk", 10), "it is sourced"
    it.sleep().watermark = it.appended
    for _ in range(10):
        assert it.policy.pushes_again("bulk", 1_000), "whatever its seq"
        it.look()
    assert it.policy.asleep("bulk")
    assert it.policy.pushes_again("bulk", 2_000)
    assert not it.policy.pushes_again("bulk", 1)
    assert not it.policy.pushes("bulk", it.appended + 1, 1, 0)
    it.look()
    assert it.policy.word == {}


@pytest.mark.parametrize(
    ("rate_bytes_s", "measured", "burst"),
    [
        (2_500.0, True, 5_000),
        (2_500.0, False, 5_000),
        (125_000.0, False, UNMEASURED_BYTES),
        (125_000.0, True, BURST_BYTES_MAX),
    ],
)
def test_what_is_pushed_at_once_takes_the_link_for_two_seconds_at_most(
    rate_bytes_s: float, measured: bool, burst: int
) -> None:
    it = Vehicle().sleep()
    it.policy.carries(rate_bytes_s, measured=measured)
    assert it.policy.pushes("bulk", it.appended + 1, burst, 1)
    assert not it.policy.pushes("bulk", it.appended + 2, 1, 1)
    it.look()
    assert it.policy.word == {}


def test_a_burst_holds_up_no_live_message() -> None:
    it = Vehicle()
    it.policy.carries(1_000.0)
    view = TrickleView(0, 0, 0, runs=True)
    for now_s in (0.0, SETTLED_S):
        it.policy.look(EPOCH, {"bulk": view, "live": view}, now_s)
    assert it.policy.pushes("bulk", 1, 2_001, 1), "a message by itself is no burst"
    assert not it.policy.pushes("bulk", 2, 1, 1)
    assert it.policy.pushes("live", 1, 500, 1)


def test_a_lane_that_was_woken_is_sourced_for_longer_each_time() -> None:
    it = Vehicle().sleep()
    pauses = []
    for _ in range(3):
        it.owed_bytes = 10_001
        it.look()
        it.owed_bytes, began_s = 0, it.now_s
        while not it.policy.word:
            it.trickle(1)
        pauses.append(it.now_s - began_s)
        it.policy.heard(["bulk"], it.now_s)
    assert pauses == [AWAKE_S_MIN, 2 * AWAKE_S_MIN, 4 * AWAKE_S_MIN]
    it.trickle(int(8 * AWAKE_S_MIN) + 2)
    it.owed_bytes = 10_001
    it.look()
    it.owed_bytes, began_s = 0, it.now_s
    while not it.policy.word:
        it.trickle(1)
    assert it.now_s - began_s == AWAKE_S_MIN, "it had slept well"


def test_a_hub_that_gives_no_leave_is_not_waited_for() -> None:
    it = Vehicle()
    it.trickle(int(SETTLED_S) + 1)
    assert it.policy.word
    it.policy.heard([], it.now_s)
    it.trickle(int(WAIT_S_MAX) - 1)
    assert it.policy.word
    it.trickle(2)
    assert it.policy.word == {}
    assert it.policy.wakes == 0


def test_a_hub_that_begins_anew_is_asked_again() -> None:
    it = Vehicle().sleep()
    it.trickle(100)
    it.policy.heard([], it.now_s)
    assert not it.policy.asleep("bulk")
    assert it.policy.unsettled
    assert it.policy.pushes("bulk", it.appended + 1, 100, 0), (
        "whether it sources the lane nobody knows yet"
    )
    it.policy.heard(["bulk"], it.now_s)
    assert it.policy.asleep("bulk")


def test_the_hub_is_told_of_a_new_epoch_at_once() -> None:
    """What the epoch before was pushed after says nothing of its messages: the hub has to source them."""
    it = Vehicle().sleep()
    assert it.policy.look(EPOCH + 1, {"bulk": TrickleView(0, 0, 0, runs=False)}, it.now_s + 1)
    assert it.policy.word == {}


def test_with_the_link_and_with_a_new_epoch_all_begins_anew() -> None:
    linked, epoch = Vehicle().sleep(), Vehicle().sleep()
    linked.policy.link()
    view = TrickleView(1, 0, 0, runs=True)
    assert not epoch.policy.look(EPOCH + 1, {"bulk": view}, epoch.now_s) or not epoch.policy.word
    for it in (linked, epoch):
        assert it.policy.word == {}
        assert not it.policy.asleep("bulk")


def test_the_first_words_after_the_link_came_up_go_beside_though_live_is_sourced() -> None:
    policy = PushPolicy(10_000)
    assert not policy.pushes("live", 4, 300, 0), "the link was not seen to come up"
    policy.link()
    assert not policy.pushes("bulk", 4, 300, 0)
    assert policy.pushes("live", 4, 300, 0)
    assert policy.pushes("live", 5, FIRST_BYTES_MAX - 300, 0)
    assert not policy.pushes("live", 6, 1, 0)
    policy.link()
    for now_s in range(FIRST_LOOKS):
        assert policy.pushes("live", 7 + now_s, 10, 0)
        policy.look(1, {}, float(now_s))
    assert not policy.pushes("live", 20, 10, 0)
    assert policy.word == {}

"""When IN sleeps and when it is sourced again, without a server."""

from __future__ import annotations

import pytest

from backhaul_agent.push.in_sleep import (
    AGAIN_S,
    ASKED_S_MAX,
    LISTENED_S,
    NET_S,
    SETTLED_S,
    InSleep,
    SleepPhase,
    SleepStep,
)
from backhaul_codec.protocol.push import WAKE, is_passing

END = 40
ENDS = {"": END, "n_gps": 7}


class Vehicle:
    """IN at a server that does as it is told, and a clock."""

    def __init__(self) -> None:
        self.sleep = InSleep()
        self.now_s = 1000.0
        self.news = self.in_doubt = 0
        self.read_to = {"": END, "n_gps": 7}

    def step(self, after_s: float = 0.0) -> SleepStep:
        self.now_s += after_s
        return self.sleep.step(self.now_s, self.news, self.in_doubt, self.read_to)

    def sourced(self) -> Vehicle:
        assert self.step() is SleepStep.WAKE
        self.sleep.woken(self.now_s)
        return self

    def falling(self) -> Vehicle:
        self.sourced()
        assert self.step(SETTLED_S) is SleepStep.REST
        assert self.step(LISTENED_S) is SleepStep.ASK
        return self

    def asleep(self) -> Vehicle:
        self.falling().sleep.heard(ENDS)
        assert self.step() is SleepStep.LOOK
        assert self.sleep.looked(0.4, 0)
        self.sleep.slept(self.now_s)
        assert self.sleep.phase is SleepPhase.ASLEEP
        return self


def test_a_quiet_stream_sleeps_once_it_has_all_that_down_has() -> None:
    """Listening comes before the question, and the question before the removal."""
    vehicle = Vehicle().sourced()
    assert vehicle.step(SETTLED_S - 1) is SleepStep.REST
    assert not vehicle.sleep.listens
    assert vehicle.step(1) is SleepStep.REST
    assert vehicle.sleep.listens
    assert vehicle.step(LISTENED_S) is SleepStep.ASK
    assert vehicle.sleep.asks
    vehicle.sleep.heard({"": END + 1, "n_gps": 7})
    assert not vehicle.sleep.asks
    assert vehicle.step(1) is SleepStep.REST  # one message is under way
    vehicle.read_to[""] = END + 1
    assert vehicle.step(1) is SleepStep.LOOK
    assert vehicle.sleep.looked(1.0, 0)
    vehicle.sleep.slept(vehicle.now_s)
    assert vehicle.sleep.phase is SleepPhase.ASLEEP
    assert vehicle.sleep.listens


@pytest.mark.parametrize(("heard_s", "lag"), [(-1, 0), (1.6, 0), (0.1, 1)])
def test_a_source_that_was_not_heard_or_lacks_something_stays(heard_s: float, lag: int) -> None:
    vehicle = Vehicle().falling()
    vehicle.sleep.heard(ENDS)
    assert vehicle.step() is SleepStep.LOOK
    assert not vehicle.sleep.looked(heard_s, lag)
    assert vehicle.step(1) is SleepStep.LOOK


@pytest.mark.parametrize("ends", [{"": END, "n_gps": 8}, {"": END}])
def test_the_stream_of_a_node_keeps_all_awake_until_it_has_what_down_has(
    ends: dict[str, int],
) -> None:
    """However far IN itself has got; and where the hub does not know the node."""
    vehicle = Vehicle().falling()
    vehicle.sleep.heard(ends)
    assert vehicle.step(1) is SleepStep.REST


def test_an_answer_to_nothing_that_was_asked_counts_for_nothing() -> None:
    vehicle = Vehicle().sourced()
    vehicle.step(SETTLED_S)
    vehicle.sleep.heard(ENDS)  # to a question before it listened
    assert vehicle.step(LISTENED_S) is SleepStep.ASK


def test_a_hub_that_does_not_answer_is_asked_again_later() -> None:
    vehicle = Vehicle().falling()
    vehicle.sleep.heard(None)
    assert vehicle.step(ASKED_S_MAX) is SleepStep.REST
    assert vehicle.sleep.phase is SleepPhase.SOURCED
    assert vehicle.step(SETTLED_S) is SleepStep.LOOK
    assert not vehicle.sleep.looked(0.1, 0)
    assert not vehicle.sleep.listens
    assert vehicle.step(AGAIN_S - SETTLED_S - 1) is SleepStep.REST
    assert not vehicle.sleep.listens
    assert vehicle.step(1) is SleepStep.REST
    assert vehicle.step(LISTENED_S) is SleepStep.ASK


def test_what_comes_by_the_stream_meanwhile_keeps_it_awake() -> None:
    vehicle = Vehicle().falling()
    vehicle.sleep.heard(ENDS)
    vehicle.news += 1
    assert (
        vehicle.step() is SleepStep.LOOK
    )  # whether it is heard, and no longer needs what comes beside
    assert vehicle.sleep.phase is SleepPhase.SOURCED
    assert not vehicle.sleep.looked(0.2, 0)
    assert not vehicle.sleep.listens
    assert vehicle.step(1) is SleepStep.REST


def test_a_word_beside_wakes_it_until_that_is_done_and_it_listens_until_the_source_is_heard() -> (
    None
):
    vehicle = Vehicle().asleep()
    vehicle.sleep.wake(vehicle.now_s)
    assert vehicle.step() is SleepStep.WAKE
    assert vehicle.step(1) is SleepStep.WAKE  # the server did not answer
    vehicle.sleep.woken(vehicle.now_s)
    assert vehicle.step() is SleepStep.LOOK
    assert not vehicle.sleep.looked(-1, 0)
    assert vehicle.sleep.listens
    assert not vehicle.sleep.looked(0.1, 0)
    assert not vehicle.sleep.listens
    assert vehicle.sleep.wakes == 1


def test_a_word_beside_while_the_source_is_being_removed_has_it_put_back() -> None:
    vehicle = Vehicle().falling()
    vehicle.sleep.heard(ENDS)
    assert vehicle.sleep.looked(0.1, 0)
    vehicle.sleep.wake(vehicle.now_s)
    vehicle.sleep.slept(vehicle.now_s)
    assert vehicle.step() is SleepStep.WAKE


def test_the_net_a_doubt_and_the_link_wake_it() -> None:
    vehicle = Vehicle().asleep()
    assert vehicle.step(NET_S) is SleepStep.REST
    assert vehicle.step(1) is SleepStep.WAKE
    vehicle = Vehicle().asleep()
    vehicle.in_doubt += 1
    assert vehicle.step() is SleepStep.WAKE
    vehicle = Vehicle().asleep()
    vehicle.sleep.begin_anew()
    assert not vehicle.sleep.listens
    assert vehicle.step() is SleepStep.WAKE


def test_passing_words_are_those_that_are_said_again() -> None:
    assert all(map(is_passing, ["s.watermark.bulk", "s.held.live", "s.digest", "s.resend.bulk"]))
    assert not any(map(is_passing, ["c.1", "p.lamp.on.%", "s.restamp.x", "s.dictionary", WAKE]))

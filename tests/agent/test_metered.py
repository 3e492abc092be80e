"""When a metered link is up, decided without any link."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_agent.cli.values.status import link_lines
from backhaul_agent.metered.policy import (
    BACKOFF_S_MAX,
    STALL_S,
    Metered,
    Mode,
    Phase,
    VisitFacts,
    VisitPlan,
)


@dataclass
class Scene:
    """A vehicle whose link does what it is told, unless `dead`."""

    mode: Mode = "scheduled"
    now_s: float = 0.0
    urgent: bool = False
    last: int = 10
    watermark: int = 0
    told: bool = True
    received: int = 0
    dead: bool = False
    moving: int | None = None
    rate: int = 0
    up: bool | None = False
    switched: list[tuple[float, bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        plan = VisitPlan(self.mode, schedule_s=3600, linger_s=2, connect_s_max=60)
        self.metered = Metered(plan, lambda: 0.5, self.now_s)

    def run(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            before = self.metered.wants_link
            lanes = {("live", 1): (0, 0), ("bulk", 1): (self.last, self.watermark)}
            self.metered.step(
                VisitFacts(
                    self.now_s, self.up, self.urgent, lanes, self.told, self.received, self.moving
                )
            )
            if self.moving is not None and self.up:
                self.moving += self.rate
            if self.metered.wants_link is not before:
                self.switched.append((self.now_s, not before))
            self.up = self.metered.wants_link and not self.dead
            self.now_s += 1

    def phase(self) -> Phase:
        return self.metered.phase

    def at_hub(self) -> None:
        self.watermark = self.last


def test_a_visit_drains_leaves_and_the_next_comes_by_the_schedule() -> None:
    scene = Scene()
    scene.run(10)
    assert scene.phase() is Phase.DRAINING
    scene.at_hub()
    scene.run(10)
    assert scene.phase() is Phase.IDLE
    assert [on for _, on in scene.switched] == [True, False]
    scene.run(3560)
    assert len(scene.switched) == 2
    scene.run(60)
    assert [on for _, on in scene.switched] == [True, False, True, False]


def test_what_is_published_during_a_visit_does_not_hold_the_link() -> None:
    scene = Scene()
    scene.run(3)
    scene.at_hub()
    for _ in range(10):
        scene.last += 5
        scene.run(1)
    assert scene.phase() is Phase.IDLE


def test_the_link_stays_until_the_hub_has_told_everything() -> None:
    scene = Scene(watermark=10, told=False)
    scene.run(30)
    assert scene.phase() is Phase.DRAINING
    scene.told = True
    for _ in range(20):
        scene.received += 1
        scene.run(1)
    assert scene.phase() is Phase.DRAINING
    scene.run(5)
    assert scene.phase() is Phase.IDLE


@pytest.mark.parametrize("mode", ["scheduled", "on-demand"])
def test_something_urgent_connects_at_once_and_stays_until_it_is_at_the_hub(mode: Mode) -> None:
    scene = Scene(mode, watermark=10)
    scene.run(60)
    assert scene.phase() is Phase.IDLE
    scene.urgent = True
    scene.run(1)
    assert scene.metered.wants_link
    scene.run(30)
    assert scene.phase() is Phase.DRAINING
    scene.urgent = False
    scene.run(5)
    assert scene.phase() is Phase.IDLE


def test_on_demand_never_visits_without_need_after_the_first_time() -> None:
    scene = Scene("on-demand", watermark=10)
    scene.run(100_000)
    assert scene.metered.visits == 1
    assert scene.metered.next_visit_s is None


def test_where_there_is_no_link_it_is_tried_ever_less_often_though_urgent() -> None:
    scene = Scene(dead=True, urgent=True)
    scene.run(20_000)
    dials = [at_s for at_s, on in scene.switched if on]
    waits = [after - before for before, after in itertools.pairwise(dials)]
    assert waits == sorted(waits)
    assert waits[0] < 120
    assert 600 < max(waits) <= 62 + BACKOFF_S_MAX
    assert len(dials) > 15
    assert scene.metered.last_failure == "no link in 60 s"
    scene.dead, scene.urgent = False, False
    scene.at_hub()
    scene.run(BACKOFF_S_MAX + 10)
    assert (scene.metered.failures, scene.metered.last_failure) == (0, "")


def test_a_visit_in_which_nothing_moves_ends() -> None:
    scene = Scene()
    scene.run(STALL_S - 10)
    scene.watermark += 1
    scene.run(STALL_S - 10)
    assert scene.phase() is Phase.DRAINING
    scene.run(20)
    assert scene.phase() is Phase.IDLE
    assert scene.metered.failures == 1


def test_a_link_that_breaks_during_a_visit_is_dialled_again() -> None:
    scene = Scene()
    scene.run(5)
    scene.dead = True
    scene.run(5)
    assert scene.phase() is Phase.DIALING
    scene.dead = False
    scene.run(3)
    assert scene.phase() is Phase.DRAINING
    assert scene.metered.visits == 1


def test_always_is_always() -> None:
    scene = Scene("always", dead=True)
    scene.run(1000)
    assert scene.metered.wants_link
    assert scene.switched == []


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.sampled_from([True, False, None]), st.booleans(), st.booleans(), st.booleans()
        ),
        max_size=200,
    ),
    st.sampled_from(["scheduled", "on-demand"]),
)
def test_whatever_happens_it_comes_to_rest_once_all_is_well(
    story: list[tuple[bool | None, bool, bool, bool]], mode: Mode
) -> None:
    scene = Scene(mode)
    for up, urgent, told, moves in story:
        scene.up, scene.urgent, scene.told = up, urgent, told
        if moves:
            scene.received += 1
        scene.now_s += 7
        scene.metered.step(
            VisitFacts(scene.now_s, up, urgent, {("bulk", 1): (10, 0)}, told, scene.received)
        )
    scene.urgent, scene.told = False, True
    scene.at_hub()
    scene.run(BACKOFF_S_MAX + 3700)
    if mode == "on-demand":
        assert scene.phase() is Phase.IDLE
    assert scene.metered.failures == 0
    assert scene.metered.visits >= 1


@pytest.mark.parametrize(
    ("link", "line"),
    [
        ({"mode": "always", "phase": "idle"}, "always: down"),
        (
            {"phase": "idle", "next_visit_s": 59.6},
            "scheduled: down, idle, 3 visits, the next in 60 s",
        ),
        ({"phase": "draining", "up": True}, "scheduled: up, draining, 3 visits"),
        ({"mode": "on-demand"}, "3 visits, the next when something urgent waits"),
    ],
)
def test_the_command_line_says_when_the_next_visit_is(link: dict[str, object], line: str) -> None:
    said = {
        "mode": "scheduled", "up": False, "phase": "idle", "visits": 3, "next_visit_s": None,
        "last_failure": "no link in 60 s", "rate_kbit_s": None, "windows": {"live": 55},
    }  # fmt: skip
    lines = link_lines(said | link)
    assert line in lines[0]
    assert "not measured; windows live 55 messages" in lines[1]
    assert "no link in 60 s" in lines[2]


def test_artifacts_hold_a_visit_for_a_while_and_make_none() -> None:
    scene = Scene("on-demand", moving=0, rate=1000)
    scene.at_hub()
    scene.run(300)
    assert scene.phase() is Phase.DRAINING, "there is something to fetch"
    scene.moving = None
    scene.run(10)
    assert scene.phase() is Phase.IDLE
    scene.moving = 0
    scene.run(3600)
    assert (scene.phase(), scene.metered.visits) == (Phase.IDLE, 1), "it is not urgent"
    scene.urgent = True
    scene.run(5)
    scene.urgent = False
    scene.run(590)
    assert scene.phase() is Phase.DRAINING
    scene.run(20)
    assert (scene.phase(), scene.metered.failures) == (Phase.IDLE, 0), "and it is not for ever"


def test_artifacts_that_do_not_move_end_a_visit_as_a_stalled_lane_does() -> None:
    scene = Scene("scheduled", moving=5)
    scene.at_hub()
    scene.run(STALL_S + 10)
    assert (scene.phase(), scene.metered.failures) == (Phase.IDLE, 1)

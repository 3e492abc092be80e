"""What the agent makes of its own status: each condition found, and gone when its reason is."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

from backhaul_agent.config import HealthConfig
from backhaul_agent.status.health import BACKLOG_MESSAGES_MIN, AgentHealth
from backhaul_codec.assurance.vehicle_conditions import KINDS

DOCS = Path(__file__).parents[2] / "docs" / "health.md"
HEALTHY: dict[str, Any] = {
    "connected": True,
    "ledger": {"bytes": 10, "bytes_max": 1000, "disk_full": False, "set_aside": ""},
    "leaf": {"failed_streams": {}, "redial": {"not_dialing": ""}},
    "link": {
        "up": True,
        "mode": "always",
        "phase": "idle",
        "shared": False,
        "budget": {"short": None},
    },
    "clock": {"quality": "synced", "step_ns": None, "step_confirms_in_s": 0.0},
    "counters": {"refused": {"busy": 3}},
    "programs": {"refused": {}, "cut": {}},
    "artifacts": {"refused": {"room": 0, "busy": 0}},
    "commands": {"cut": {"dump": 0}, "left_open": {"dump": 0}},
    "lanes": {"bulk": {"state": "running", "ready_seq": 9, "last_seq": 9, "watermark": 9}},
}


def but(**changes: dict[str, Any]) -> dict[str, Any]:
    """Return a healthy status with some keys of some sections changed."""
    status = copy.deepcopy(HEALTHY)
    for section, keys in changes.items():
        status[section] |= keys
    return status


class Looks:
    """Looks at one agent, a second apart."""

    def __init__(self, config: HealthConfig | None = None, *, hub_confirms: bool = True) -> None:
        self.health = AgentHealth(config or HealthConfig(patience=0), hub_confirms=hub_confirms)
        self.now_s = 0.0

    def codes(self, status: dict[str, Any], after_s: float = 1.0) -> list[str]:
        self.now_s += after_s
        self.health.look(status, self.now_s, int(self.now_s * 1e9))
        return [each.code for each in self.health.conditions.shown()]


SHORT = {
    "short": "day: telemetry",
    "profile": "home",
    "day": {"bytes": 9_000_000, "bytes_max": 10_000_000},
    "flush_s": 60.0,
    "keeps_one_of": 1,
}
WAITING = {"bulk": {"state": "running", "ready_seq": 9, "last_seq": 9, "watermark": 4}}


def test_nothing_is_wrong_with_a_healthy_agent() -> None:
    looks = Looks()
    assert [looks.codes(HEALTHY) for _ in range(3)] == [[], [], []]


def test_each_condition_is_found_and_ends() -> None:
    looks = Looks()
    looks.codes(HEALTHY)
    for code, status in {
        "disk-full": but(ledger={"disk_full": True}),
        "ledger-filling": but(ledger={"bytes": 801}),
        "ledger-damaged": but(ledger={"set_aside": "/var/lib/ledger.db.damaged"}),
        "leaf-store": but(leaf={"failed_streams": {"OUT_bulk": "no space left"}}),
        "link-down": but(link={"up": False}),
        "leaf-not-dialing": but(link={"up": False}, leaf={"redial": {"not_dialing": "it answers"}}),
        "clock-unset": but(clock={"quality": "unset"}),
        "hub-clock-step": but(clock={"step_ns": 86_400 * 10**9, "step_confirms_in_s": 77.0}),
        "ledger-behind": but(lanes={"bulk": HEALTHY["lanes"]["bulk"] | {"state": "ledger_behind"}}),
        "leaf-away": HEALTHY | {"connected": False},
    }.items():
        assert looks.codes(status) == [code]
        assert looks.codes(HEALTHY) == []
    assert looks.codes(but(ledger={"bytes": 800})) == []


def test_a_backlog_that_passes_though_the_budget_is_short_is_named_with_it() -> None:
    """What was answered *kept* goes as fast as the link carries it."""
    looks = Looks()
    lanes = {"bulk": HEALTHY["lanes"]["bulk"], "live": HEALTHY["lanes"]["bulk"]}
    lanes["bulk"] = lanes["bulk"] | {"ready_seq": 8 + BACKLOG_MESSAGES_MIN}
    status = but(link={"budget": SHORT}) | {"lanes": lanes}
    looks.codes(status)
    assert "wait" not in looks.health.conditions.shown()[0].detail.partition("points wait")[2]
    lanes["live"] = lanes["live"] | {"ready_seq": 10}
    looks.codes(status)
    (shown,) = [each for each in looks.health.conditions.shown() if each.code == "link-budget"]
    assert shown.detail.endswith(
        f"; {BACKLOG_MESSAGES_MIN} messages wait, and no budget holds them back"
    )


def test_a_short_budget_is_told_and_that_telemetry_is_thinned_apart_from_it() -> None:
    looks = Looks()
    assert looks.codes(but(link={"budget": SHORT})) == ["link-budget"]
    (shown,) = looks.health.conditions.shown()
    assert shown.about == "day: telemetry"
    assert shown.detail == "home, 9.0 of 10 MB used, points wait 60 s for a message"
    thinned = but(
        link={"budget": SHORT | {"keeps_one_of": 4}},
        counters={"refused": {"busy": 3, "thinned": 9}},
    )
    assert looks.codes(thinned) == ["telemetry-thinned", "link-budget"], "programs are not to blame"
    assert looks.codes(HEALTHY) == []


def test_refusals_are_told_for_a_while_by_their_code() -> None:
    looks = Looks()
    assert looks.codes(HEALTHY) == []
    looks.codes(but(counters={"refused": {"busy": 3}}))
    more = but(counters={"refused": {"busy": 5}})
    assert looks.codes(more) == ["publishers-refused"]
    (shown,) = looks.health.conditions.shown()
    assert (shown.about, shown.detail) == ("busy", "2 more")
    assert looks.codes(more, 599) == ["publishers-refused"]
    assert looks.codes(more) == []


def test_executables_that_print_too_much_or_leave_something_running_are_told_of_for_a_while() -> (
    None
):
    looks = Looks()
    assert looks.codes(HEALTHY) == []
    cut = but(commands={"cut": {"dump": 1}})
    assert looks.codes(cut) == ["command-output-cut"]
    both = but(commands={"cut": {"dump": 1}, "left_open": {"dump": 2}})
    assert looks.codes(both, 599) == ["command-left-running", "command-output-cut"]
    shown = looks.health.conditions.shown()[0]
    assert (shown.about, shown.detail) == ("dump", "2 more")
    assert looks.codes(both) == ["command-left-running"]
    assert looks.codes(both, 599) == []


def test_files_without_room_are_told_of_for_a_while() -> None:
    looks = Looks()
    assert looks.codes(HEALTHY) == []
    refused = but(artifacts={"refused": {"room": 2, "busy": 0}})
    assert looks.codes(refused) == ["artifacts-refused"]
    (shown,) = looks.health.conditions.shown()
    assert (shown.about, shown.detail) == ("room", "2 more")
    assert looks.codes(refused, 600) == []


def test_a_lane_stalls_when_the_hub_confirms_nothing_of_what_waits() -> None:
    looks = Looks()
    assert looks.codes(but(lanes=WAITING)) == []
    assert looks.codes(but(lanes=WAITING)) == ["lane-stalled"]
    assert looks.codes(but(lanes={"bulk": WAITING["bulk"] | {"watermark": 5}})) == []
    unknown = but(lanes=WAITING, link={"up": None})
    assert [looks.codes(unknown) for _ in range(2)] == [[], []]
    held = {"bulk": WAITING["bulk"] | {"ready_seq": 4}}
    assert [looks.codes(but(lanes=held)) for _ in range(2)] == [[], []]  # waits for the time
    alone = Looks(hub_confirms=False)
    assert [alone.codes(but(lanes=WAITING)) for _ in range(2)] == [[], []]


def test_a_link_that_is_down_hides_what_follows_from_it_before_it_is_shown() -> None:
    looks = Looks(HealthConfig())
    waits = but(lanes=WAITING, clock={"quality": "unset"})
    looks.codes(waits)
    looks.codes(waits)
    assert looks.codes(waits, 60) == ["lane-stalled", "clock-unset"]
    down = but(link={"up": False}, lanes=WAITING, clock={"quality": "unset"})
    assert looks.codes(down) == []
    assert looks.codes(down, 59) == []
    assert looks.codes(down) == ["link-down"]
    away = down | {"connected": False}
    looks.codes(away)
    assert looks.codes(away, 10) == ["leaf-away"]


def test_a_metered_link_is_down_by_its_plan_and_only_missed_when_it_is_dialled() -> None:
    looks = Looks()
    assert (
        looks.codes(but(link={"up": False, "mode": "scheduled", "phase": "idle", "shared": False}))
        == []
    )
    dialling = but(link={"up": False, "mode": "scheduled", "phase": "dialing", "shared": False})
    assert looks.codes(dialling) == ["link-down"]


def test_a_program_that_floods_is_named_until_it_has_stopped_for_a_while() -> None:
    looks = Looks(HealthConfig(patience=0, refused_shown_s=100))
    assert looks.codes(but(programs={"refused": {"cam": 999}})) == []  # a burst, by chance
    floods = but(programs={"refused": {"cam": 1000}})
    assert looks.codes(floods) == ["program-flooding"]
    [shown] = looks.health.conditions.shown()
    assert (shown.about, shown.detail) == ("cam", "1000 messages refused")
    assert looks.codes(floods, 99) == ["program-flooding"]
    assert looks.codes(floods, 15) == []
    assert looks.codes(but(programs={"refused": {"cam": 1000}, "cut": {"gps": 1}})) == [
        "program-flooding"
    ]


def test_every_code_is_in_the_manual_with_its_severity() -> None:
    page = DOCS.read_text().partition("## On the vehicle")[2]
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| (\w+) \|", page, re.MULTILINE)
    assert {(kind.code, str(kind.severity)) for kind in KINDS} == set(rows)

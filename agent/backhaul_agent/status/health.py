"""The conditions of this vehicle, judged from the agent's own status (docs/health.md). Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from backhaul_agent.config import HealthConfig
from backhaul_agent.errors import Code
from backhaul_codec.assurance.conditions import Conditions, Finding, Growth, Place
from backhaul_codec.assurance.vehicle_conditions import (
    HUB_CLOCK_STEP,
    KINDS,
    LINK_DOWN,
    NOT_DIALING,
)

FLOOD_MIN = 1000  # messages refused of one program, for want of room, that make a flood of it
BACKLOG_MESSAGES_MIN = 64  # messages that the hub has not confirmed: of a trickle there are fewer


class AgentHealth:
    """The agent's conditions, by looks in a row."""

    def __init__(self, config: HealthConfig, *, hub_confirms: bool = True) -> None:
        after_s = {LINK_DOWN: config.link_down_after_s}
        table = [replace(kind, after_s=after_s.get(kind.code, kind.after_s)) for kind in KINDS]
        self.conditions = Conditions(table, config.patience)
        self._config = config
        self._hub_confirms = hub_confirms
        self._refused = Growth(config.refused_shown_s)
        self._no_room = Growth(config.refused_shown_s)
        self._left_open = Growth(config.refused_shown_s)
        self._cut = Growth(config.refused_shown_s)
        # Programs are named once they flood; the agent has counted since it started.
        self._too_much = Growth(config.refused_shown_s, begins_at_0=True)
        self._doors_cut = Growth(config.refused_shown_s, begins_at_0=True)
        self._watermarks: dict[str, int] = {}

    def look(self, status: dict[str, Any], now_s: float, now_ns: int) -> None:
        """Take in the status as it is now (status/status.py); `now_s` is monotonic."""
        self.conditions.note(list(self._findings(status, now_s)), now_s, now_ns)
        self._watermarks = {lane: state["watermark"] for lane, state in status["lanes"].items()}

    def _findings(self, status: dict[str, Any], now_s: float) -> Iterator[Finding]:
        ledger, link = status["ledger"], status["link"]
        if ledger["disk_full"]:
            yield Finding("disk-full")
        if ledger["bytes"] > self._config.ledger_full_part * ledger["bytes_max"]:
            part = 100 * ledger["bytes"] / ledger["bytes_max"]
            yield Finding("ledger-filling", detail=f"{part:.0f}% of {ledger['bytes_max']} bytes")
        if ledger["set_aside"]:
            yield Finding("ledger-damaged", detail=ledger["set_aside"])
        for stream, said in status["leaf"]["failed_streams"].items():
            yield Finding("leaf-store", Place("", stream), said)
        if said := status["leaf"]["redial"]["not_dialing"]:
            yield Finding(NOT_DIALING, detail=said)
        if not status["connected"]:
            yield Finding("leaf-away")
        if link["up"] is False and (
            link["mode"] == "always" or link["phase"] in ("dialing", "draining")
        ):
            yield Finding(LINK_DOWN)
        yield from _of_budget(link["budget"], status["lanes"])
        if link["shared"]:
            does = "they take turns" if link["switched"] else "link.system_nkey is not set"
            yield Finding("identity-shared", detail=does)
        if status["clock"]["quality"] == "unset":
            yield Finding("clock-unset")
        if (step_ns := status["clock"]["step_ns"]) is not None:
            in_s = status["clock"]["step_confirms_in_s"]
            detail = f"by {step_ns / 1e9:+.1f} s; followed in {in_s:.0f} s if it stays"
            yield Finding(HUB_CLOCK_STEP, detail=detail)
        for code, more in self._refused.lately(status["counters"]["refused"], now_s).items():
            if code == Code.THINNED:
                continue  # the programs do nothing wrong
            yield Finding("publishers-refused", Place("", code), f"{more} more")
        yield from self._of_programs(status["programs"], now_s)
        for why, more in self._no_room.lately(status["artifacts"]["refused"], now_s).items():
            yield Finding("artifacts-refused", Place("", why), f"{more} more")
        for name, more in self._left_open.lately(status["commands"]["left_open"], now_s).items():
            yield Finding("command-left-running", Place("", name), f"{more} more")
        for name, more in self._cut.lately(status["commands"]["cut"], now_s).items():
            yield Finding("command-output-cut", Place("", name), f"{more} more")
        for lane, state in status["lanes"].items():
            yield from self._of_lane(lane, state, link["up"])

    def _of_programs(self, said: dict[str, Any], now_s: float) -> Iterator[Finding]:
        refused = self._too_much.lately(said["refused"], now_s)
        cut = self._doors_cut.lately(said["cut"], now_s)
        for program in sorted(refused.keys() | cut.keys()):
            more = refused.get(program, 0)
            if more >= FLOOD_MIN or program in cut:
                yield Finding("program-flooding", Place("", program), f"{more} messages refused")

    def _of_lane(self, lane: str, state: dict[str, Any], up: bool | None) -> Iterator[Finding]:
        if state["state"] == "ledger_behind":
            yield Finding("ledger-behind", Place("", lane))
        waiting, still = state["ready_seq"] - state["watermark"], self._watermarks.get(lane)
        if self._hub_confirms and up and waiting > 0 and state["watermark"] == still:
            yield Finding("lane-stalled", Place("", lane), f"{waiting} messages")


def _of_budget(budget: dict[str, Any], lanes: dict[str, Any]) -> Iterator[Finding]:
    if not budget["short"]:
        return
    period = budget["short"].partition(":")[0]
    used = f"{budget[period]['bytes'] / 1e6:.1f} of {budget[period]['bytes_max'] / 1e6:g} MB used"
    detail = f"{budget['profile']}, {used}, points wait {budget['flush_s']:.3g} s for a message"
    waiting = sum(state["ready_seq"] - state["watermark"] for state in lanes.values())
    if waiting >= BACKLOG_MESSAGES_MIN:
        detail += f"; {waiting} messages wait, and no budget holds them back"
    yield Finding("link-budget", Place("", budget["short"]), detail)
    if budget["keeps_one_of"] > 1:
        detail = f"one message of {budget['keeps_one_of']} is kept"
        yield Finding("telemetry-thinned", Place("", budget["short"]), detail)

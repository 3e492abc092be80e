"""What is wrong on this vehicle, judged from the agent's own status (docs/health.md). Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from backhaul_codec.conditions import Conditions, Finding, Growth, Kind, Place, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backhaul_agent.config import HealthConfig

_ERROR, _WARNING = Severity.ERROR, Severity.WARNING
LINK_DOWN = "link-down"

KINDS = (
    Kind(
        "disk-full",
        _ERROR,
        "the disk of the ledger is full",
        "free some space; until then the oldest and cheapest goes first",
    ),
    Kind(
        "leaf-store",
        _ERROR,
        "the leaf server cannot write a stream",
        "mend its disk, then restart it: backhaul-agent leaf-check says when that heals it",
    ),
    Kind(
        "ledger-behind",
        _ERROR,
        "others know messages that this ledger never gave out: the lane is halted",
        "the ledger was put back from an old copy: see docs/continuity.md",
        after_s=10,
    ),
    Kind(
        "leaf-away",
        _ERROR,
        "no connection to the leaf server",
        "start it; the ledger keeps all readings of programs that reach the agent meanwhile",
        after_s=10,
    ),
    Kind(
        "ledger-filling",
        _WARNING,
        "the ledger is nearly full",
        "see why the hub confirms nothing, or raise ledger.bytes_max",
        after_s=10,
    ),
    Kind(
        "ledger-damaged",
        _WARNING,
        "a ledger was damaged, and set aside; a new one goes on",
        "see whether the disk fails; then remove the file",
    ),
    Kind(
        "publishers-refused",
        _WARNING,
        "programs on this vehicle publish what cannot be taken",
        "listen on agent.rejected.> for what, and why",
    ),
    Kind(
        "lane-stalled",
        _WARNING,
        "messages wait, the link is up, and the hub confirms nothing",
        "look at backhaul-hub status, and at this lane's last_error",
        after_s=60,
        depends_on=(LINK_DOWN, "leaf-away", "leaf-store", "ledger-behind"),
    ),
    Kind(
        "clock-unset",
        _WARNING,
        "the time is not known: stamps are provisional",
        "it is learned from the hub once the link is up: docs/clocks.md",
        after_s=60,
        depends_on=(LINK_DOWN, "leaf-away"),
    ),
    Kind(
        LINK_DOWN,
        _WARNING,
        "the leaf server has no link to the hub, and should have",
        "nothing where there is no network; else see the leaf server's log",
        after_s=60,
        depends_on=("leaf-away",),
    ),
)


class AgentHealth:
    """The agent's conditions, by looks in a row."""

    def __init__(self, config: HealthConfig, *, hub_confirms: bool = True) -> None:
        after_s = {LINK_DOWN: config.link_down_after_s}
        table = [replace(kind, after_s=after_s.get(kind.code, kind.after_s)) for kind in KINDS]
        self.conditions = Conditions(table, config.patience)
        self._config = config
        self._hub_confirms = hub_confirms
        self._refused = Growth(config.refused_shown_s)
        self._watermarks: dict[str, int] = {}

    def look(self, status: dict[str, Any], now_s: float, now_ns: int) -> None:
        """Take in the status as it is now (status.py); `now_s` is monotonic."""
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
        if not status["connected"]:
            yield Finding("leaf-away")
        if link["up"] is False and (
            link["mode"] == "always" or link["phase"] in ("dialing", "draining")
        ):
            yield Finding(LINK_DOWN)
        if status["clock"]["quality"] == "unset":
            yield Finding("clock-unset")
        for code, more in self._refused.lately(status["counters"]["refused"], now_s).items():
            yield Finding("publishers-refused", Place("", code), f"{more} more")
        for lane, state in status["lanes"].items():
            yield from self._of_lane(lane, state, link["up"])

    def _of_lane(self, lane: str, state: dict[str, Any], up: bool | None) -> Iterator[Finding]:
        if state["state"] == "ledger_behind":
            yield Finding("ledger-behind", Place("", lane))
        waiting, still = state["ready_seq"] - state["watermark"], self._watermarks.get(lane)
        if self._hub_confirms and up and waiting > 0 and state["watermark"] == still:
            yield Finding("lane-stalled", Place("", lane), f"{waiting} messages")

"""[link] of agent.toml: the capacity of the uplink, when it is up, and its budget. Pure."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Interface = Annotated[str, Meta(pattern=r"^[^\s/.][^\s/]{0,14}\Z")]
CountryCode = Annotated[str, Meta(pattern=r"^[0-9]{3}\Z")]


class RoamingConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[link.roaming]: another budget abroad, or on another interface (docs/link.md#a-budget).

    ``file``: what a modem manager writes: the interface in use and the network's country; empty: the
    agent does not know, and goes by the budget of [link]. Roaming is what uses one of ``interfaces``,
    or a country that is not among ``home_mcc``. Budgets 0 and 0: the same as at home, counted apart.
    """

    file: str = ""
    interfaces: Annotated[tuple[Interface, ...], Meta(max_length=16)] = ()
    home_mcc: Annotated[tuple[CountryCode, ...], Meta(max_length=64)] = ()
    budget_mb_day: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    budget_mb_month: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    budget_flush_s_max: Annotated[float, Meta(ge=0, le=3600)] = 0.0


class LinkConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[link]: the capacity of the uplink, and when it is up (docs/link.md).

    ``rate_kbit_s`` sets how much may be in flight on it: with ``adaptive`` at first only, then what
    was measured does.

    ``mode``: "always" up; "scheduled": up every ``schedule_s`` and whenever something urgent waits;
    "on-demand": only then. ``urgent``: the least class that is. The link is left once nothing has
    come for ``linger_s``, and given up for a while where it is not there after ``connect_s_max``.
    ``stalled_after_s``: for how long the hub may confirm nothing of a lane before it is told so.
    ``push``: whether lanes that only trickle are pushed instead of sourced, where the link is always up.
    ``file``: what leaf.conf includes to know whether there is a link; the leaf server is told of a
    change through its account SYS (``system_nkey``, a file), or by SIGHUP
    (``pid_file``).

    ``redial_nkey``: a file with that key, with which the agent has the leaf server dial anew where a link that is
    always up is half-open; empty: the servers' pings alone notice it.

    ``redial_after_s``: how long the link is down before `leaf-check` looks whether the leaf server
    dials at all; 0: it never looks.

    ``budget_mb_day``, ``budget_mb_month``: what the link may carry in a day and a month of UTC, in
    both directions; 0: no limit. Where it is short, points are framed up to ``budget_flush_s_max`` after
    they came, then telemetry is thinned; the pace is measured over ``budget_window_s``. Bytes are
    those of ``budget_interface``; empty: those that the leaf server counts.
    """

    rate_kbit_s: Annotated[float, Meta(gt=0, le=10_000_000)] = 1000.0
    adaptive: bool = True
    mode: Literal["always", "scheduled", "on-demand"] = "always"
    schedule_s: Annotated[float, Meta(ge=10, le=1e7)] = 3600.0
    urgent: Literal["telemetry", "state", "config", "event"] = "event"
    linger_s: Annotated[float, Meta(ge=0, le=3600)] = 2.0
    connect_s_max: Annotated[float, Meta(ge=1, le=3600)] = 60.0
    stalled_after_s: Annotated[float, Meta(ge=1, le=3600)] = 30.0
    push: bool = True
    file: Annotated[str, Meta(min_length=1)] = "link/link.conf"
    system_nkey: str = ""
    pid_file: str = ""
    redial_nkey: str = "system.nk"
    redial_after_s: Annotated[float, Meta(ge=0, le=86_400)] = 300.0
    budget_mb_day: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    budget_mb_month: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    budget_flush_s_max: Annotated[float, Meta(ge=0.01, le=3600)] = 60.0
    budget_window_s: Annotated[float, Meta(ge=1, le=86_400)] = 900.0
    budget_interface: Annotated[str, Meta(pattern=r"^([^\s/.][^\s/]{0,14})?\Z")] = ""
    roaming: RoamingConfig = RoamingConfig()

    @property
    def switched(self) -> bool:
        """Whether the agent can have the link switched on and off."""
        return bool(self.system_nkey or self.pid_file)


def budget_problem(link: LinkConfig, flush_s: float) -> tuple[str, str] | None:
    """Return the key of a budget that makes no sense, and why; None where all do.

    Args:
        link: as read.
        flush_s: `[frame] age_s_max`.
    """
    roaming = link.roaming
    for name, each in (("link", link), ("link.roaming", roaming)):
        if each.budget_mb_month and each.budget_mb_day > each.budget_mb_month:
            return f"{name}.budget_mb_day", "more than budget_mb_month"
        limited = each.budget_mb_day or each.budget_mb_month
        if limited and 0 < each.budget_flush_s_max < flush_s:
            return f"{name}.budget_flush_s_max", f"at least frame.age_s_max ({flush_s:g})"
    if roaming.file and not (roaming.interfaces or roaming.home_mcc):
        return "link.roaming.home_mcc", "missing: interfaces, or home_mcc, say what roaming is"
    if not roaming.file and roaming != RoamingConfig():
        return "link.roaming.file", "missing: nothing else says where the vehicle is"
    return None

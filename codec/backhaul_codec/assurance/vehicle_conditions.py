"""Every condition that a vehicle can be in, worst and most telling first (docs/health.md). Pure.

The agent finds them; the hub shows those that it is told of (`protocol/vehicle_report.py`).
"""

from __future__ import annotations

from backhaul_codec.assurance.conditions import Kind, Severity

_ERROR, _WARNING = Severity.ERROR, Severity.WARNING
LINK_DOWN = "link-down"
NOT_DIALING = "leaf-not-dialing"
HUB_CLOCK_STEP = "hub-clock-step"
DISK_FULL = "disk-full"
LEDGER_FILLING = "ledger-filling"

KINDS = (
    Kind(
        DISK_FULL,
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
        "identity-shared",
        _ERROR,
        "another machine uses this vehicle's identity, and is online now",
        "enrol one of the two anew: docs/enrolment.md",
    ),
    Kind(
        "leaf-away",
        _ERROR,
        "no connection to the leaf server",
        "start it; the ledger keeps all readings of programs that reach the agent meanwhile",
        after_s=10,
    ),
    Kind(
        NOT_DIALING,
        _WARNING,
        "the leaf server had stopped to dial the hub, whose port answered",
        "backhaul-leaf-check.timer restarts it; without systemd restart it by hand: docs/link.md#a-server-that-does-not-dial",
    ),
    Kind(
        "telemetry-thinned",
        _ERROR,
        "the link's budget is short: telemetry is thinned, and programs are told which is not kept",
        "raise [link] budget_mb_day or budget_mb_month in agent.toml, or see what takes it: backhaul-agent status",
    ),
    Kind(
        LEDGER_FILLING,
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
        "program-flooding",
        _WARNING,
        "a program sends the agent more than it takes; others are served meanwhile",
        "mend it, or shut it out: backhaul-agent app rm and its name (_open: backhaul-agent app close)",
    ),
    Kind(
        "link-budget",
        _WARNING,
        "the link carries more than its budget allows for: points are sent later, in fuller messages",
        "see what takes it: backhaul-agent status; for housekeeping set link.mode: docs/link.md#a-budget",
    ),
    Kind(
        "artifacts-refused",
        _WARNING,
        "there was no room for a file that a program hands over, or that the hub wants here",
        "see: backhaul-agent artifact ls; cancel some, free the disk, or raise artifacts.bytes_max",
    ),
    Kind(
        "command-left-running",
        _WARNING,
        "an executable of a command has left something running that holds its output",
        "have it start that elsewhere, as by systemd-run, or with its output in a file: docs/commands.md",
    ),
    Kind(
        "command-output-cut",
        Severity.INFO,
        "an executable of a command printed more than is kept",
        "have it print less, or raise commands.result_bytes_max",
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
        HUB_CLOCK_STEP,
        _WARNING,
        "the hub's clock is not where it was, and is not followed",
        "see that the hub's clock is right (timedatectl there); it is followed if it stays: docs/clocks.md",
    ),
    Kind(
        LINK_DOWN,
        _WARNING,
        "the leaf server has no link to the hub, and should have",
        "nothing where there is no network; else see the leaf server's log",
        after_s=60,
        depends_on=("leaf-away", NOT_DIALING),
    ),
)

"""`backhaul-hub devices`: Show each device: link, heads, lag, watermark, gaps, when last seen."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import click

from backhaul_codec.state.point_text import columns, shown
from backhaul_codec.subjects import node_of_lane
from backhaul_hub.cli._ask import Access
from backhaul_hub.cli._options import access_option, awaited
from backhaul_runtime.clock import Clock, SystemClock

_RANGES_SHOWN = 5
_HEADINGS = (
    *("DEVICE", "LINK", "HEADS", "LANE"),
    *("WATERMARK", "NEWEST", "LAG", "GAPS", "LAST SEEN", "BYTES"),
)


@click.command()
@access_option
@click.option("--json", "as_json", is_flag=True, help="The whole report, for programs.")
@awaited
async def devices(access: Access, as_json: bool) -> None:
    """Show each device: link, heads in sync, lag, watermark, gaps, when last seen, bytes.

    Then whether its agent runs, and what that says of itself: version, how full ledger and disk are, how
    good its clock is, the codes of its conditions, and the bytes of its link in this month, with the largest kind.
    """
    report: dict[str, Any] = {"devices": []}
    after: str | None = ""
    async with access.client() as client:
        while after is not None:
            page = await access.ask(client, "devices", {"after": after}, reads=True)
            report["devices"] += page["devices"]
            report["streams"], after = page["streams"], page["next"]
    if as_json:
        click.echo(json.dumps(report, indent=2))
        return
    _print(report, SystemClock())


def _print(report: dict[str, Any], clock: Clock) -> None:
    now_ns = clock.now_ns()
    click.echo("\n".join([*table(report, now_ns), "", *agents(report, now_ns)]))
    for device in report["devices"]:
        for lane, known in device["lanes"].items():
            if known["lost"]:
                click.echo(
                    f"{device['device']} {lane}: UP has lost {known['lost']} messages that it"
                    " held; they are asked for again",
                    err=True,
                )
        for former in device["former"]:
            click.echo(
                f"{device['device']} {former['lane']} of former epoch {former['epoch']}: misses"
                f" {_ranges(former['owed'], former['owed_ranges'])}",
                err=True,
            )
        if ahead := device["future"]:
            click.echo(
                f"{device['device']}: {ahead['points']} readings stamped from the future, up to"
                f" {_ago(ahead['newest_ns'] - ahead['last_ns'])} ahead, the last one read"
                f" {_ago(now_ns - ahead['last_ns'])} ago; they are kept: set the clock of the"
                " program that stamps them",
                err=True,
            )
        if (key := device["rotation"]) and key["state"] != "done":
            why = f": {shown(key['why'])}" if key["why"] else ""
            click.echo(
                f"{device['device']}: another key is {key['state']}, for"
                f" {_ago(now_ns - key['changed_ns'])}{why}",
                err=True,
            )
        if count := device["lanes_not_shown"]:
            click.echo(f"{device['device']}: {count} more lanes, not shown", err=True)
        for bound, count in device["refused"].items():
            click.echo(
                f"{device['device']}: {count} messages not counted, beyond the bound on {bound}",
                err=True,
            )
    for stream in report["streams"]:
        if stream["quarantined"]:
            click.echo(
                f"{stream['stream']}: {stream['quarantined']} unreadable messages set aside in"
                " stream QUARANTINE",
                err=True,
            )


def table(report: dict[str, Any], now_ns: int) -> list[str]:
    """Return a line for each lane of each device, below their headings."""
    rows = [_HEADINGS]
    for device in report["devices"]:
        state = _link_cell(device, now_ns)
        for lane, known in compact(device["lanes"]).items() or [("-", None)]:
            first = (device["device"], state, _heads_cell(device["heads"]), lane)
            rows.append((*first, *_lane_cells(known, now_ns)))
    return columns(rows, right=range(_HEADINGS.index("WATERMARK"), len(_HEADINGS)))


def agents(report: dict[str, Any], now_ns: int) -> list[str]:
    """Return a line for the agent of each device, below their headings."""
    rows: list[tuple[str, ...]] = [
        (
            "DEVICE",
            "AGENT",
            "VERSION",
            "MACHINE",
            "LEDGER",
            "DISK",
            "BUDGET",
            "LINK MONTH",
            "CLOCK",
            "SAYS",
            "TOLD",
        )
    ]
    for device in report["devices"]:
        agent, clock = device["agent"], device["clock"]
        state = {True: "up", False: "down", None: "?"}[agent["up"]]
        since = f" {_ago(now_ns - agent['since_ns'])}" if agent["up"] is not None else ""
        says = sorted({code for code, _ in agent["conditions"]})
        rows.append(
            (
                device["device"],
                state + since,
                agent["version"] or "-",
                agent["machines"][-1]["machine"] if agent["machines"] else "-",
                *(_percent(agent[name]) for name in ("ledger_pct", "disk_pct", "budget_pct")),
                _link_bytes(agent["link_bytes"]),
                clock["quality"] if clock else "-",
                ", ".join(says) or "-",
                f"{_ago(now_ns - agent['told_ns'])} ago" if agent["told_ns"] else "never",
            )
        )
    return columns(rows, right=(4, 5, 6))


def _percent(figure: int | None) -> str:
    return "-" if figure is None else f"{figure}%"


def _link_bytes(kinds: dict[str, int] | None) -> str:
    """Return the sum of a link's bytes in words, and its largest kind."""
    if kinds is None:
        return "-"
    total = sum(kinds.values())
    most = max(kinds, key=kinds.__getitem__)
    part = f", {100 * kinds[most] // total}% {most}" if total else ""
    return f"{total / 1e6:,.1f} MB{part}"


def _link_cell(device: dict[str, Any], now_ns: int) -> str:
    link = device["link"]
    state, since_ns = "up" if link["up"] else "down", link["since_ns"]
    if device["revoked_ns"]:
        state, since_ns = "revoked", device["revoked_ns"]
    return f"{state} {_ago(now_ns - since_ns)}" if since_ns else state


def compact(lanes: dict[str, Any]) -> dict[str, Any]:
    """Return the lanes with those of nodes that nothing waits in or is missing of as one, in sum."""
    quiet = {
        lane: known
        for lane, known in lanes.items()
        if node_of_lane(lane) is not None and not known["gaps"] and not known["lag_messages"]
    }
    if len(quiet) < 2:
        return lanes
    added = ("watermark", "highest_seq", "bytes")
    together: dict[str, Any] = {key: sum(it[key] for it in quiet.values()) for key in added}
    together |= {"gaps": [], "gap_ranges": 0, "lag_messages": 0}
    if any(it["lag_messages"] is None for it in quiet.values()):
        together["lag_messages"] = None
    together["last_seen_ns"] = max(it["last_seen_ns"] for it in quiet.values())
    others = {lane: known for lane, known in lanes.items() if lane not in quiet}
    return others | {f"{len(quiet)} nodes": together}


def _heads_cell(heads: dict[str, Any]) -> str:
    if heads["waiting"]:
        return f"{heads['waiting']:,} to send"
    state = {True: "in sync", False: "differ", None: "?"}[heads["in_sync"]]
    return f"{state}, {heads['conflicts']} in conflict" if heads["conflicts"] else state


def _lane_cells(lane: dict[str, Any] | None, now_ns: int) -> list[str]:
    if lane is None:
        return ["-", "-", "-", "-", "never", "0"]
    return [
        f"{lane['watermark']:,}",
        f"{lane['highest_seq']:,}",
        "?" if lane["lag_messages"] is None else f"{lane['lag_messages']:,}",
        _ranges(lane["gaps"], lane["gap_ranges"]) or "none",
        f"{_ago(now_ns - lane['last_seen_ns'])} ago",
        f"{lane['bytes']:,}",
    ]


def _ranges(ranges: list[tuple[int, int]], count: int) -> str:
    shown = [f"{low}..{high}" if low != high else str(low) for low, high in ranges[:_RANGES_SHOWN]]
    if count > len(shown):
        shown.append(f"and {count - len(shown)} more")
    return ", ".join(shown)


def _ago(nanoseconds: int) -> str:
    return str(timedelta(seconds=max(0, nanoseconds) // 1_000_000_000))

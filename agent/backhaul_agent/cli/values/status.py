"""`backhaul-agent status`: Ask a running agent how it is."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import click

from backhaul_agent.cli.asking import ask
from backhaul_agent.cli.options import directory_option, server_options
from backhaul_agent.enrol.link_probe import why_no_link
from backhaul_agent.enrol.vehicle_files import Directory
from backhaul_agent.errors import EnrolmentFailedError, VehicleFilesError
from backhaul_codec.assurance.conditions import Severity, page_lines
from backhaul_runtime.clock import SystemClock

EXIT_CONDITIONS = 3


@click.command(name="status")
@server_options
@click.option("--json", "as_json", is_flag=True, help="Print the whole answer as JSON.")
@directory_option
@click.option("--check", is_flag=True, help="Exit 3 where a warning or an error is shown.")
def command(login: dict[str, Any], as_json: bool, directory: Path, check: bool) -> None:
    """Ask the agent on this vehicle how it is; exit 1 where none answers.

    Where there is no link and the vehicle's files can be read, it is tried why: that takes some
    seconds. Not with --json.
    """
    answer = ask(login, lambda agent: agent.status())
    if as_json:
        click.echo(json.dumps(answer, indent=2))
    else:
        click.echo("\n".join(_lines(answer, _why_no_link(answer["link"], directory))))
    if check and any(each["severity"] != Severity.INFO for each in answer["conditions"]):
        sys.exit(EXIT_CONDITIONS)


def _why_no_link(link: dict[str, Any], directory: Path) -> str:
    """Return the reason why a link is down that should be up, in a sentence; empty: nothing is known."""
    if link["up"] is not False or link["mode"] != "always":
        return ""
    try:
        found = Directory(directory).read()
        if found:
            click.echo("no link: trying why ...", err=True)
        return asyncio.run(why_no_link(found, SystemClock().now_ns() / 1e9))
    except VehicleFilesError:
        return "why, this says to who may read the vehicle's files"
    except EnrolmentFailedError as error:
        return f"why, cannot be tried: {error}"


def _lines(status: dict[str, Any], why_no_link: str) -> list[str]:
    ledger, counters = status["ledger"], status["counters"]
    part = 100 * ledger["bytes"] / ledger["bytes_max"]
    lines = [
        f"device    {status['device']}, epoch {status['epoch']}, up {status['uptime_s']:.0f} s",
        f"ledger    {ledger['bytes'] / 1e6:.1f} MB of {ledger['bytes_max'] / 1e6:.1f} ({part:.0f}%)",
        f"          {ledger['staged_points']} points staged, {ledger['quarantined_rows']} quarantined",
        f"kept      {counters['points_kept']} points since the start",
    ]
    lines += [*link_lines(status["link"]), *budget_lines(status["link"]["budget"])]
    if why_no_link:
        lines.append(f"          {why_no_link}")
    lines.append(clock_line(status["clock"]))
    for name, lane in status["lanes"].items():
        lines.append(
            f"{name:<9} {lane['state']}: committed {lane['last_seq']}, in the leaf's stream "
            f"{lane['appended']}, at the hub {lane['watermark']}"
            + (" (waits for the hub)" if lane["waits_for_hub"] else "")
            + (" (waits for the time)" if lane["ready_seq"] < lane["last_seq"] else "")
        )
    heads = status["heads"]
    lines.append(
        f"heads     {heads['count']}"
        + (
            f", {heads['edges_left_out']} edges left out of the tree"
            * bool(heads["edges_left_out"])
        )
        + (f", {heads['nodes_differing']} nodes differ" * bool(heads["nodes_differing"]))
    )
    refused = ", ".join(f"{count} {code}" for code, count in sorted(counters["refused"].items()))
    lines.append(f"refused   {refused or 'nothing'}")
    if status["last_error"]:
        lines.append(f"error     {status['last_error']}")
    return lines + page_lines(status["conditions"], status["clock"]["time_ns"])


def link_lines(link: dict[str, Any]) -> list[str]:
    """Return the status of the link, for people."""
    state = {True: "up", False: "down", None: "unknown"}[link["up"]]
    if link["mode"] != "always":
        state += f", {link['phase']}, {link['visits']} visits"
        if link["next_visit_s"] is not None:
            state += f", the next in {link['next_visit_s']:.0f} s"
        elif link["phase"] == "idle":
            state += ", the next when something urgent waits"
    windows = ", ".join(f"{lane} {size}" for lane, size in link["windows"].items())
    rate = "not measured" if link["rate_kbit_s"] is None else f"{link['rate_kbit_s']:g} kbit/s"
    lines = [f"link      {link['mode']}: {state}", f"          {rate}; windows {windows} messages"]
    if link["last_failure"]:
        lines.append(f"          {link['last_failure']}")
    return lines


def budget_lines(budget: dict[str, Any]) -> list[str]:
    """Return the bytes of the link by period and kind, for people; nothing where there is no budget."""
    if not budget["limited"]:
        return []
    lines = []
    for period in ("day", "month"):
        said = budget[period]
        of = f" of {said['bytes_max'] / 1e6:g}" if said["bytes_max"] else ""
        sizes = sorted(said["kinds"].items(), key=lambda each: -each[1])
        kinds = ", ".join(f"{kind} {size / 1e6:.1f}" for kind, size in sizes if size)
        lines.append(
            f"          this {period}, {budget['profile']}: {said['bytes'] / 1e6:.1f}{of} MB: {kinds}"
        )
    thinned = f", keeps 1 of {budget['keeps_one_of']}" * (budget["keeps_one_of"] > 1)
    lines.append(f"          points wait {budget['flush_s']:.3g} s for a message{thinned}")
    if budget["error"]:
        lines.append(f"          {budget['error']}")
    return lines


def clock_line(clock: dict[str, Any]) -> str:
    """Return the agent's knowledge of the time, for people."""
    error_ns, held = clock["error_ns"], clock["held_messages"]
    error = "error not known" if error_ns is None else f"error at most {error_ns / 1e6:.1f} ms"
    text = f"clock     {clock['quality']}: {clock['offset_ns'] / 1e9:+.3f} s from the wall clock, {error}"
    return text + (f"; {held} messages wait for the time" if held else "")

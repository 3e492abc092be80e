"""`backhaul-hub status`: Show the conditions of hub and devices, worst first, and their remedies."""

from __future__ import annotations

import json
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from backhaul_codec.assurance.conditions import Severity, page_lines
from backhaul_codec.state.point_text import shown
from backhaul_hub.cli._ask import Operator, ask
from backhaul_hub.cli._options import directory_option

EXIT_CONDITIONS = 3


@click.command()
@directory_option
@click.option("--json", "as_json", is_flag=True, help="All conditions, for programs.")
@click.option("--check", is_flag=True, help="Exit 3 where a warning or an error is shown.")
def status(directory: Path, as_json: bool, check: bool) -> None:
    """Show conditions and remedies: of the hub, worst first, then one line for each device.

    Exit status: 0, or 1 where the control plane does not answer; with --check 3 where anything
    worse than `info` is shown.
    """
    answer = ask(Operator(directory), "status", reads=True)
    click.echo(json.dumps(answer, indent=2) if as_json else "\n".join(lines(answer)))
    if check and any(each["severity"] != Severity.INFO for each in answer["conditions"]):
        sys.exit(EXIT_CONDITIONS)


def lines(answer: dict[str, Any]) -> list[str]:
    """Return the answer for people."""
    conditions = answer["conditions"]
    found = [f"{answer['devices']} devices, {answer['connected']} connected"]
    if machines := answer.get("standby"):
        found += _machines(machines)
    if not answer["looked_ns"]:
        return [*found, "not looked yet"]
    if not conditions:
        return [*found, "all is well"]
    found += page_lines([each for each in conditions if not each["device"]], answer["time_ns"])
    of_devices = sorted(
        (each for each in conditions if each["device"]), key=lambda each: str(each["device"])
    )
    for device, theirs in groupby(of_devices, key=lambda each: each["device"]):
        found.append(f"{device}: {', '.join(_brief(each) for each in theirs)}")
    # Once of each kind: a thousand vehicles may have the same.
    remedies = {each["code"]: each["hint"] for each in of_devices}
    if remedies:
        found += ["what to do:", *(f"  {code}: {hint}" for code, hint in remedies.items())]
    if more := answer["conditions_not_shown"]:
        found.append(f"{more} more, not shown; by code: {answer['counts']}")
    return found


def _machines(machines: dict[str, Any]) -> list[str]:
    """Return who leads, and each that follows."""
    found = [f"{machines['leads']} leads"]
    for each in machines["follow"]:
        if each["heard_s"] is None:
            state = "was not heard"
        elif each["ready"]:
            state = f"follows, ready, {each['behind']:,} entries behind"
        else:
            state = f"heard {each['heard_s']:g} s ago, not ready {shown(each['why'])}".rstrip()
        found.append(f"  {each['machine']} {state}")
    return found


def _brief(condition: dict[str, Any]) -> str:
    about = f" {condition['about']}" if condition["about"] else ""
    detail = f" ({shown(condition['detail'])})" if condition["detail"] else ""
    return f"{condition['severity']} {condition['code']}{about}{detail}"

"""`backhaul-hub history VID NODE.TYPE`: Show the past of a series, as a page's chart has it."""

from __future__ import annotations

from typing import Any

import click

from backhaul_codec.protocol.history import POINTS_MAX
from backhaul_codec.state.json_values import parse_path
from backhaul_codec.state.point_text import shown, utc
from backhaul_hub.cli._ask import Access, ask
from backhaul_hub.cli._options import access_option, json_option, time_ns
from backhaul_hub.cli._printing import print_json
from backhaul_runtime.clock import SystemClock

_HOUR_US = 3_600_000_000


@click.command()
@click.argument("device", metavar="VID")
@click.argument("path", metavar="NODE.TYPE[.KEY]")
@access_option
@click.option(
    "--from",
    "from_ns",
    callback=time_ns,
    metavar="TIME",
    help="From then on; UTC. Default: an hour before the end.",
)
@click.option("--to", "to_ns", callback=time_ns, metavar="TIME", help="Up to then; default: now.")
@click.option(
    "--points",
    type=click.IntRange(10, POINTS_MAX),
    default=60,
    show_default=True,
    help="At most so many readings, or stretches of time with the least and the greatest.",
)
@json_option
def history(
    access: Access,
    device: str,
    path: str,
    from_ns: int | None,
    to_ns: int | None,
    points: int,
    as_json: bool,
) -> None:
    """Show the past of a series of VID; messages that no ingest has written yet are in it.

    It is answered by `backhaul-spark serve-history`, a process beside the tables.
    """
    node, type_, key = parse_path(path)
    to_us = (SystemClock().now_ns() if to_ns is None else to_ns) // 1000
    from_us = to_us - _HOUR_US if from_ns is None else from_ns // 1000
    question = {"device": device, "node": node, "type": type_, "key": key}
    said = ask(
        access,
        "history",
        question | {"from_us": from_us, "to_us": to_us, "points_max": points},
    )
    if as_json:
        print_json(said)
        return
    for line in _lines(said):
        click.echo(line)


def _lines(said: dict[str, Any]) -> list[str]:
    columns = (said[name] for name in ("t_us", "min", "max", "n"))
    lines = [
        f"{utc(at * 1000)}  {low:<12g}" + (f" to {high:<12g} n {count}" if said["width_us"] else "")
        for at, low, high, count in zip(*columns, strict=True)
    ]
    lines += [
        f"{utc(begin * 1000)}  {utc(end * 1000)}  {shown(value)}"
        for begin, end, value in said["runs"]
    ]
    if said["runs_more"]:
        lines.append(f"# {said['runs_more']} more")
    lines += [
        f"# {reason} from {utc(begin * 1000)} to {utc(end * 1000)}"
        for begin, end, reason in said["gaps"]
    ]
    if said["aside"]:
        lines.append(f"# {said['aside']} messages of {said['device']} wait for their dictionary")
    lines += [f"# {note}" for note in said["notes"]]
    return lines if said["t_us"] or said["runs"] else [*lines, "# no readings in that time"]

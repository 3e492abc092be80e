"""`backhaul-hub alerts [VID]`, `alerts ack ID`, `alerts silence NODE`, `alerts unsilence ID`: Show alerts, acknowledge and silence them."""

from __future__ import annotations

import re
from typing import Any

import click

from backhaul_codec.state.point_text import columns, shown, utc
from backhaul_hub.cli._ask import Access, ask
from backhaul_hub.cli._group import DefaultGroup
from backhaul_hub.cli._options import access_option, json_option, who_option
from backhaul_hub.cli._printing import print_json

_UNITS_S = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86_400}


def _span_s(context: click.Context, parameter: click.Parameter, value: str) -> float:
    """Read a span such as 90min, 2h or 3d, in seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d)", value)
    if found is None:
        raise click.BadParameter(
            f"{value!r} is no span such as 90min, 2h or 3d", context, parameter
        )
    return float(found[1]) * _UNITS_S[found[2]]


@click.group(cls=DefaultGroup, default="list")
def alerts() -> None:
    """Show alerts: of rules, of the hub's health, and anomalies; acknowledge and silence them.

    `alerts [VID]` lists those that are open, of all devices or one; see `alerts list --help`.
    """


@alerts.command("list")
@click.argument("device", metavar="[VID]", required=False)
@access_option
@click.option("--past", is_flag=True, help="Show those that are over, too.")
@click.option("--id", "id_", metavar="ID", help="One alert alone, with who was told of it.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=200,
    show_default=True,
    help="The newest so many.",
)
@json_option
def list_(
    device: str | None, access: Access, past: bool, id_: str | None, limit: int, as_json: bool
) -> None:
    """List alerts, the newest first, and the silences that hold."""
    asked = {"device": device, "past": past or id_ is not None, "id": id_, "limit": limit}
    answer = ask(access, "alerts", asked, reads=True)
    if as_json:
        print_json(answer)
        return
    _print(answer)


@alerts.command()
@click.argument("id_", metavar="ID")
@click.option("--note", default="", help="What is done about it.")
@access_option
@who_option
@json_option
def ack(id_: str, note: str, access: Access, who: str, as_json: bool) -> None:
    """Say that you take care of an open alert: nobody is told of it again until it is over."""
    answer = ask(access, "acknowledge", {"id": id_, "note": note, "who": who})
    if as_json:
        print_json(answer)
        return
    acked = answer["acknowledged"]
    click.echo(f"{acked['by']} takes care of {id_} since {utc(acked['time_ns'])}")


@alerts.command()
@click.argument("node")
@click.option(
    "--for", "for_s", required=True, callback=_span_s, metavar="SPAN", help="90min, 2h, 3d."
)
@click.option("--name", default="", help="This rule or condition alone; * for any.  [default: all]")
@click.option("--why", default="", help="The reason, for others.")
@access_option
@who_option
@json_option
def silence(
    node: str, for_s: float, name: str, why: str, access: Access, who: str, as_json: bool
) -> None:
    """Have nobody told of alerts for a time: of NODE, a group or a device, and all below; `fleet` is everything."""
    asked = {"group": node, "for_s": for_s, "name": name, "why": why, "who": who}
    answer = ask(access, "silence", asked)
    if as_json:
        print_json(answer)
    else:
        click.echo(f"silence {answer['id']}: {node} until {utc(answer['until_ns'])}")


@alerts.command()
@click.argument("id_", metavar="ID", type=int)
@access_option
@who_option
@json_option
def unsilence(id_: int, access: Access, who: str, as_json: bool) -> None:
    """End a silence before its time."""
    answer = ask(access, "silence", {"end": id_, "who": who})
    if as_json:
        print_json(answer)
    else:
        click.echo(f"silence {id_} is over")


def _print(answer: dict[str, Any]) -> None:
    found = answer["alerts"]
    if found:
        rows = [("ID", "SEVERITY", "SINCE", "DEVICE", "NAME", "", "TEXT")]
        rows += [
            (
                *(each["id"], each["severity"], utc(each["since_ns"]), each["device"] or "(hub)"),
                *(" ".join(filter(None, (each["name"], each["about"]))), _state(each)),
                each["text"],
            )
            for each in found
        ]
        click.echo("\n".join(columns(rows)))
    else:
        click.echo("no alerts", err=True)
    for each in answer.get("notices", ()):
        sent = utc(each["sent_ns"]) if each["sent_ns"] else "waits"
        click.echo(f"# {each['channel']}: {each['kind']} at {utc(each['made_ns'])}, sent: {sent}")
    for each in answer["silences"]:
        what = f"{each['group']} {each['name']}".strip()
        why = f": {shown(each['why'])}" if each["why"] else ""
        click.echo(
            f"# silence {each['id']}: {what} until {utc(each['until_ns'])} by {each['who']}{why}"
        )
    for name, each in answer.get("channels", {}).items():
        if each["error"]:
            waiting = f"# channel {name} fails, {each['waiting']} notices wait"
            click.echo(f"{waiting}: {shown(each['error'])}")


def _state(alert: dict[str, Any]) -> str:
    if alert["ended_ns"]:
        return f"over {utc(alert['ended_ns'])}"
    if acked := alert["acknowledged"]:
        return f"acknowledged by {acked['by']}"
    if alert["silent_until_ns"]:
        return f"silent until {utc(alert['silent_until_ns'])}"
    return "open, late" if alert["late"] else "open"

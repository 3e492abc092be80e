"""`backhaul-hub conflicts [VID]`, `conflicts revert ID`, `conflicts accept ID`: List values that lost to a write that did not know of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from backhaul_codec.state.point_text import columns, origin, path, utc, value
from backhaul_hub.cli._ask import Access, ask
from backhaul_hub.cli._group import DefaultGroup
from backhaul_hub.cli._options import access_option, json_option, who_option
from backhaul_hub.cli._printing import print_json, print_points


@click.group(cls=DefaultGroup, default="list")
def conflicts() -> None:
    """List values that lost though vehicle and hub wrote without knowing of each other.

    `conflicts [VID]` lists, of all devices or one; see `conflicts list --help`.
    """


@conflicts.command("list")
@click.argument("device", metavar="[VID]", required=False)
@access_option
@click.option("--settled", is_flag=True, help="Show those that were reverted or accepted too.")
@json_option
def list_(device: str | None, access: Access, settled: bool, as_json: bool) -> None:
    """List conflicts, oldest first."""
    answer = ask(access, "conflicts", {"device": device, "settled": settled}, reads=True)
    if as_json:
        print_json(answer)
        return
    _print(answer["conflicts"])
    if forgotten := answer.get("dropped", {}).get("open"):
        click.echo(
            f"{forgotten} more were forgotten unsettled: see [conflicts] in hub.toml", err=True
        )


def _settling(command: Callable[..., None]) -> click.Command:
    """Make a command that settles one conflict: both take the same."""
    for option in (json_option, who_option, access_option):
        command = option(command)
    return conflicts.command()(click.argument("id_", metavar="ID", type=int)(command))


@_settling
def revert(**asked: Any) -> None:
    """Write the loser's value again, as a new point of the hub."""
    _settle(**asked, accept=False)


@_settling
def accept(**asked: Any) -> None:
    """Let the winner stand, and list the conflict no more."""
    _settle(**asked, accept=True)


def _settle(*, id_: int, access: Access, who: str, as_json: bool, accept: bool) -> None:
    answer = ask(access, "revert", {"id": id_, "who": who, "accept": accept})
    if accept and not as_json:
        click.echo(f"conflict {id_} is settled: the winner stands")
    else:
        print_points(answer, as_json=as_json)


def _print(found: list[dict[str, Any]]) -> None:
    if not found:
        click.echo("no conflicts", err=True)
        return
    rows = [("ID", "DEVICE", "SERIES", "", "VALUE", "TIME", "BY", "CLOCK", "NOTICED")]
    for each in found:
        noticed = each.get("resolution") or utc(each["noticed_ns"])
        first = (str(each["id"]), each["device"], path(each))
        for cells, side, last in ((first, "winner", noticed), (("", "", ""), "loser", "")):
            point = each[side]
            told = (value(point), utc(point["time"]), origin(point), point["clock"])
            rows.append((*cells, side, *told, last))
    click.echo("\n".join(columns(rows)))

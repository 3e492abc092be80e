"""`backhaul-hub add-device VID`: Enrol device VID and write its identity document."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import click

from backhaul_codec.protocol.identity import LinkMode
from backhaul_hub.cli._options import directory_option, vehicle_options
from backhaul_hub.cli._tell import tell_hub
from backhaul_hub.config import load
from backhaul_hub.enrol.add_device import (
    AddedDevice,
    ChangedNodes,
    DeviceSettings,
    change_nodes,
    create_device,
    is_enrolled,
)
from backhaul_hub.errors import RegistryError
from backhaul_runtime.clock import SystemClock

_KEPT = ("link_kbit_s", "link_mode")


@click.command("add-device")
@click.argument("device", metavar="VID")
@directory_option
@vehicle_options
@click.option("--json", "as_json", is_flag=True, help="What was done, for programs.")
@click.pass_context
def add_device(
    context: click.Context,
    device: str,
    directory: Path,
    link_kbit_s: float,
    link_mode: LinkMode,
    per_node: bool | None,
    nodes: tuple[str, ...],
    as_json: bool,
) -> None:
    """Enrol device VID and write its identity document.

    A running hub learns of it at once, without a restart. With --per-node or --per-device for a
    device that is there already: have exactly these nodes have streams of their own from now on.
    """
    if bool(nodes) != bool(per_node):
        raise click.UsageError("--per-node and --node NAME go together")
    if per_node is not None and asyncio.run(is_enrolled(directory, device)):
        if given := [name for name in _KEPT if _is_given(context, name)]:
            raise RegistryError(
                f"device {device} exists already and keeps its {', '.join(given)}",
                hint="say --per-node and --node, or --per-device, and nothing else",
            )
        changed, problem = asyncio.run(_change(directory, device, nodes))
        if as_json:
            _print_json(changed, problem)
        else:
            _print_changed(changed, problem)
        return
    settings = DeviceSettings(
        link_kbit_s=link_kbit_s,
        link_mode=link_mode,
        nodes=nodes,
    )
    added, problem = asyncio.run(_add(directory, device, settings))
    if as_json:
        _print_json(added, problem)
    else:
        _print_added(added, problem)


def _is_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def _print_json(done: AddedDevice | ChangedNodes, problem: str | None) -> None:
    """Print the facts that a script goes on with; never the document's contents."""
    device = done.device
    said = {"device": device.id, "identity": str(done.identity), "nodes": list(device.nodes)}
    said |= {"leaving": list(device.leaving), "dropped": list(getattr(done, "dropped", ()))}
    click.echo(json.dumps(said | {"told": problem is None}))


def _print_added(added: AddedDevice, reload_problem: str | None) -> None:
    device = added.device.id
    click.echo(f"""\
{device} may send to this hub. Bring this file to it, and run there what stands beside it. The file
holds the device's login: delete the copies that you made.
  {added.identity}    backhaul-agent enrol --file {added.identity.name}""")
    _print_problem(device, reload_problem)


def _print_changed(changed: ChangedNodes, reload_problem: str | None) -> None:
    device = changed.device
    named = ", ".join(device.nodes) or "none"
    click.echo(f"""\
Nodes of {device.id} with streams of their own: {named}. Bring to it:
  {changed.identity}    then: backhaul-agent enrol --file {changed.identity.name}""")
    if device.leaving:
        click.echo(
            f"The lanes of {', '.join(device.leaving)} are read until nothing of them is missing;"
            " the same command then drops them."
        )
    if changed.dropped:
        click.echo(f"Dropped, all of them is here: the lanes of {', '.join(changed.dropped)}.")
    _print_problem(device.id, reload_problem)


def _print_problem(device: str, problem: str | None) -> None:
    if problem:
        click.echo(
            f"The hub was not told ({problem}); it learns of {device} when its control plane starts.",
            err=True,
        )


async def _add(
    directory: Path, device: str, settings: DeviceSettings
) -> tuple[AddedDevice, str | None]:
    config = load(directory)
    added = await create_device(directory, config, SystemClock(), device, settings)
    return added, await tell_hub(directory, config)


async def _change(
    directory: Path, device: str, nodes: tuple[str, ...]
) -> tuple[ChangedNodes, str | None]:
    config = load(directory)
    changed = await change_nodes(directory, SystemClock(), device, nodes)
    return changed, await tell_hub(directory, config)

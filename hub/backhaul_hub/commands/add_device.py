"""`backhaul-hub add-device VID`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from backhaul_codec.identity import leaf_name
from backhaul_hub.clock import SystemClock
from backhaul_hub.config import load
from backhaul_hub.connection import connect
from backhaul_hub.control import RELOAD_SERVICE
from backhaul_hub.enrol import DeviceSettings, change_nodes, create_device, is_enrolled
from backhaul_hub.errors import HubError, RegistryError
from backhaul_hub.fellow_servers import cut_leaf, reload_servers
from backhaul_hub.servers import server_directories, urls

from ._options import directory_option

if TYPE_CHECKING:
    from pathlib import Path

    from backhaul_codec.identity import LinkMode
    from backhaul_hub.config import HubConfig
    from backhaul_hub.enrol import AddedDevice, ChangedNodes
    from backhaul_hub.registry import Device

_KEPT = ("link_kbit_s", "link_mode")


@click.command("add-device")
@click.argument("device", metavar="VID")
@directory_option
@click.option(
    "--link-kbit-s",
    default=1000.0,
    show_default=True,
    help="What the vehicle's link carries at its worst; bounds how much is in flight on it.",
)
@click.option(
    "--link-mode",
    type=click.Choice(["always", "scheduled", "on-demand"]),
    default="always",
    show_default=True,
    help="When the link is up; other than always, the agent switches it.",
)
@click.option(
    "--per-node/--per-device",
    default=None,
    help="Whether the nodes that --node names have streams of their own.  [default: per device]",
)
@click.option(
    "--node",
    "nodes",
    multiple=True,
    metavar="NAME",
    help="A node with streams of its own; several times, at most 64. All others share.",
)
@click.pass_context
def add_device(
    context: click.Context,
    device: str,
    directory: Path,
    link_kbit_s: float,
    link_mode: LinkMode,
    per_node: bool | None,
    nodes: tuple[str, ...],
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
        _print_changed(*asyncio.run(_change(directory, device, nodes)))
        _print_cluster(directory)
        return
    settings = DeviceSettings(
        link_kbit_s=link_kbit_s,
        link_mode=link_mode,
        nodes=nodes,
    )
    _print_added(*asyncio.run(_add(directory, device, settings)))
    _print_cluster(directory)


def _is_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


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


def _print_cluster(directory: Path) -> None:
    """Say what is left to do where servers have their files on machines of their own."""
    targets = server_directories(directory)
    if len(targets) > 1:
        click.echo(f"""\
Each server of the cluster reads its own copy of who the devices are. Bring these to their machines:
{"".join(f"  {target}/*.conf" + chr(10) for target in targets)}\
then: backhaul-hub reload --dir {directory}""")


def _print_problem(device: str, reload_problem: str | None) -> None:
    if reload_problem:
        click.echo(
            f"The hub was not told ({reload_problem}); reload or restart its nats-server for it to know {device}.",
            err=True,
        )


async def _add(
    directory: Path, device: str, settings: DeviceSettings
) -> tuple[AddedDevice, str | None]:
    config = load(directory)
    added = await create_device(directory, config, SystemClock(), device, settings)
    return added, await tell_hub(config)


async def _change(
    directory: Path, device: str, nodes: tuple[str, ...]
) -> tuple[ChangedNodes, str | None]:
    config = load(directory)
    changed = await change_nodes(directory, device, nodes)
    return changed, await tell_hub(config, changed.device)


async def tell_hub(config: HubConfig, changed: Device | None = None) -> str | None:
    """Let the hub take note; return why it could not."""
    try:
        system = await connect(config.nats.url, config.nats.system)
        servers = len(urls(config.nats.url))
        try:
            try:
                await reload_servers(system, servers)
            finally:
                await _reload_control(config)
            if changed is not None:
                await cut_leaf(system, leaf_name(changed.id, changed.token), servers)
        finally:
            await system.close()
    except HubError as error:
        return error.message
    return None


async def _reload_control(config: HubConfig) -> None:
    """Let the control plane read hub.db again."""
    control = await connect(config.nats.url, config.nats.control)
    try:
        await control.request(RELOAD_SERVICE, b"", timeout=10)
    except NoRespondersError:
        # No control plane runs; it reads hub.db when it starts.
        return
    except NatsError as error:
        raise HubError(f"the control plane did not take note: {error!r}") from error
    finally:
        await control.close()

"""`backhaul-hub add-device VID`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from backhaul_hub.clock import SystemClock
from backhaul_hub.config import load
from backhaul_hub.connection import connect
from backhaul_hub.control import RELOAD_SERVICE
from backhaul_hub.errors import HubError
from backhaul_hub.setup import DeviceSettings, create_device

from ._options import directory_option

if TYPE_CHECKING:
    from backhaul_hub.config import HubConfig
    from backhaul_hub.setup import AddedDevice


@click.command("add-device")
@click.argument("device", metavar="VID")
@directory_option
@click.option(
    "--port", default=4222, show_default=True, help="Port for local programs on the vehicle."
)
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path),
    default=Path("/var/lib"),
    show_default=True,
    help="Where on the vehicle backhaul-agent/ (ledger) and backhaul-leaf/ (streams) are kept.",
)
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
    help="When the link is up; other than always, leaf.conf lets the agent switch it.",
)
def add_device(
    device: str,
    directory: Path,
    port: int,
    state_dir: Path,
    link_kbit_s: float,
    link_mode: str,
) -> None:
    """Enrol device VID and write its leaf.conf and agent.toml.

    A running hub learns of it at once, without a restart.
    """
    settings = DeviceSettings(
        client_port=port, state_dir=state_dir, link_kbit_s=link_kbit_s, link_mode=link_mode
    )
    added, reload_problem = asyncio.run(_add(directory, device, settings))
    click.echo(f"""\
{device} may send to this hub. Bring these files to it (they hold its password and token):
  {added.leaf_conf}     for: nats-server -c leaf.conf
  {added.agent_toml}    for: backhaul-agent run --config agent.toml""")
    if added.link_conf is not None:
        click.echo(
            f"  {added.link_conf}     beside leaf.conf; the agent's user must be able to write it"
        )
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
    try:
        await _reload(config)
    except HubError as error:
        return added, error.message
    return added, None


async def _reload(config: HubConfig) -> None:
    """Let the server read devices.conf again, then the control plane hub.db."""
    system = await connect(config.nats.url, config.nats.system)
    try:
        answer = await system.request(
            f"$SYS.REQ.SERVER.{system._server_info['server_id']}.RELOAD", b"", timeout=10
        )
        if error := json.loads(answer.data).get("error"):
            raise HubError(f"the server refused its configuration: {error.get('description')}")
    except NatsError as error:
        raise HubError(f"no answer from the server to a reload: {error!r}") from error
    finally:
        await system.close()
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

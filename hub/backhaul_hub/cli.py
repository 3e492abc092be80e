"""`backhaul-hub`: the command line of the hub."""

from __future__ import annotations

import sys

import click

from .commands.add_device import add_device
from .commands.artifact import artifact
from .commands.backup import backup
from .commands.command import command
from .commands.command_list import command_list
from .commands.completeness import completeness
from .commands.conflicts import conflicts
from .commands.devices import devices
from .commands.enrol import enrol
from .commands.events import events
from .commands.get import get
from .commands.init import init
from .commands.migrate import migrate
from .commands.node import node
from .commands.reload import reload
from .commands.restore import restore
from .commands.revoke import revoke
from .commands.rotate import rotate
from .commands.set import set_
from .commands.shadow import shadow
from .commands.simulate import simulate
from .commands.status import status
from .commands.tls import tls
from .commands.tree import tree
from .commands.up import up
from .commands.user import user
from .commands.watch import watch
from .errors import HubError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="backhaul")
def cli() -> None:
    """Run and question a backhaul hub.

    A hub is a nats-server with a directory of configuration (`init`), the control plane beside
    it (`up`), and the devices that may send to it (`add-device`, `devices`). `status` says what is
    wrong, `completeness` whether anything of a device's hours is missing, `events` what programs on
    vehicles reported.
    Points are read and written with `get`, `set` and `watch`, what is desired of a device with
    `shadow`, the tree with `tree` and `node`. Files for vehicles, and from them, are kept with
    `artifact`. Vehicles are told to do something with `command`; `commands` says what became of
    it. `user` gives people rights to a part of the tree. `reload` has every server of a cluster learn of new devices; `tls` renews their certificates.
    `simulate` loads a test hub with a fleet that is not there.
    """


for _command in (
    init,
    up,
    enrol,
    add_device,
    rotate,
    revoke,
    devices,
    reload,
    tls,
    status,
    completeness,
    events,
    get,
    set_,
    watch,
    shadow,
    conflicts,
    tree,
    node,
    artifact,
    backup,
    restore,
    migrate,
    command,
    command_list,
    user,
    simulate,
):
    cli.add_command(_command)


def main() -> None:
    """Run the command line; an error of ours is one line on stderr and exit status 1."""
    try:
        cli()
    except HubError as error:
        print(f"backhaul-hub: {error}", file=sys.stderr)
        sys.exit(1)

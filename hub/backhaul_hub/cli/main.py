"""`backhaul-hub`: the command line of the hub; one file a subcommand, in `server`, `fleet`, and `values`."""

from __future__ import annotations

import click

from backhaul_codec.errors import MappingError
from backhaul_codec.programs.command_line import Subcommands, run
from backhaul_hub.errors import HubError

COMMANDS = {
    "init": "Write a new hub's server and control plane configuration into DIRECTORY.",
    "up": "Bring streams and sources in line, then run the control plane.",
    "enrol": "Print a token with which a vehicle becomes device VID, once.",
    "tokens": "List enrolment tokens that can still be used.",
    "add-device": "Enrol device VID and write its identity document.",
    "rotate": "Give device VID another key, over the air.",
    "revoke": "Shut device VID out for ever.",
    "one-machine": "Say that one machine alone uses the identity of VID.",
    "devices": "Show each device: link, heads, lag, watermark, gaps, when last seen.",
    "reload": "Have every server and the control plane know all devices.",
    "tls": "See and renew the certificates that the hub's servers show.",
    "status": "Show what is wrong, worst first, and what to do about it.",
    "completeness": "Say for each hour whether all that a device acknowledged is held.",
    "events": "Show what programs on vehicles reported.",
    "get": "Show the current value of every series of a device.",
    "set": "Write points of a device; they reach it now, or when it is back.",
    "watch": "Show the heads of a device, then every change as it comes.",
    "shadow": "Show what is desired of a device and what it has; desire something.",
    "conflicts": "List values that lost to a write that did not know of them.",
    "tree": "Draw the tree: groups, devices, and the nodes inside of them.",
    "node": "Change the tree: groups above devices, and the nodes inside of them.",
    "artifact": "Keep files for vehicles, and fetch what vehicles have uploaded.",
    "backup": "Take a backup of the hub while it runs, and check it.",
    "restore": "Put a hub back from a backup, and check it.",
    "migrate": "Move this hub's streams to another server, and check them.",
    "command": "Send a command to a device: carried out once, or not at all.",
    "commands": "List the newest commands, and where they stand.",
    "user": "Give people rights to a part of the tree, and take them back.",
    "import": "Bring a fleet's old logs into the history, each row once.",
    "simulate": "Write into a test hub what the sources of a whole fleet would.",
}


_ROOMS = {
    "server": "init up status reload tls user backup restore migrate import_ completeness",
    "fleet": "enrol tokens add_device rotate revoke one_machine devices node simulate",
    "values": "get set watch shadow conflicts tree events artifact command command_list",
}
_MODULES = {
    module.strip("_").replace("_", "-"): f"{room}.{module}"
    for room, modules in _ROOMS.items()
    for module in modules.split()
}


@click.group(
    cls=Subcommands,
    package="backhaul_hub.cli",
    summaries=COMMANDS,
    modules=_MODULES | {"commands": "values.command_list"},
)
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
    `import` brings old logs of a whole fleet into the history. `simulate` loads a test hub with a fleet that is not there.
    """


def main() -> None:
    """Run the command line."""
    run(cli, "backhaul-hub", HubError, MappingError)

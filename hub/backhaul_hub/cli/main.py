"""`backhaul-hub`: the command line of the hub; one file a subcommand, in `server`, `fleet`, and `values`."""

from __future__ import annotations

import click

from backhaul_codec.errors import MappingError
from backhaul_codec.programs.command_line import Subcommands, run
from backhaul_hub.errors import HubError


@click.group(
    cls=Subcommands,
    program="backhaul-hub",
    rooms=[f"backhaul_hub.cli.{room}" for room in ("server", "fleet", "values")],
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
    `grow` makes a hub of three servers of one, `migrate` moves it.
    `import` brings old logs of a whole fleet into the history. `simulate` loads a test hub with a fleet that is not there.
    """


def main() -> None:
    """Run the command line."""
    run(cli, "backhaul-hub", HubError, MappingError)

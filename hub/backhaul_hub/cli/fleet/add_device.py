"""`backhaul-hub add-device VID`: Enrol device VID and write its identity document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from backhaul_codec.protocol.identity import LinkMode
from backhaul_hub.access.identity_documents import IDENTITY_FILE
from backhaul_hub.cli._act import act
from backhaul_hub.cli._options import directory_option, vehicle_options
from backhaul_hub.errors import ConfigError
from backhaul_hub.private_files import private_directory, write_private

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
    del link_kbit_s, link_mode  # they count where they are given
    if bool(nodes) != bool(per_node):
        raise click.UsageError("--per-node and --node NAME go together")
    given = {name: context.params[name] for name in _KEPT if _is_given(context, name)}
    question = given | {"device": device} | ({} if per_node is None else {"nodes": nodes})
    done = act(directory, "add-device", question)
    identity = keep_document(directory, device, done["document"])
    if as_json:
        _print_json(done, identity)
        return
    if done["added"]:
        click.echo(f"""\
{device} may send to this hub. Bring this file to it, and run there what stands beside it. The file
holds the device's login: delete the copies that you made.
  {identity}    backhaul-agent enrol --file {identity.name}""")
    else:
        _print_changed(done, identity)
    if problem := done["problem"]:
        click.echo(
            f"The hub was not told ({problem}); it learns of {device} when its control plane starts.",
            err=True,
        )


def keep_document(directory: Path, device: str, document: str) -> Path:
    """Return where a device's document is: written here, if the control plane has written it elsewhere.

    Raises:
        ConfigError: it cannot be written.
    """
    path = directory / "devices" / device / IDENTITY_FILE
    try:
        if not path.exists() or path.read_text() != document:
            private_directory(path.parent)
            write_private(path, document)
    except OSError as error:
        raise ConfigError(
            f"{error.filename or path}: {error.strerror}",
            hint=f"the device is added; its document is on the control plane's machine: devices/{device}",
        ) from error
    return path


def _is_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def _print_json(done: dict[str, Any], identity: Path) -> None:
    """Print the facts that a script goes on with; never the document's contents."""
    said = {"device": done["device"], "identity": str(identity), "nodes": done["nodes"]}
    said |= {"leaving": done["leaving"], "dropped": done["dropped"]}
    click.echo(json.dumps(said | {"told": not done["problem"]}))


def _print_changed(done: dict[str, Any], identity: Path) -> None:
    named = ", ".join(done["nodes"]) or "none"
    click.echo(f"""\
Nodes of {done["device"]} with streams of their own: {named}. Bring to it:
  {identity}    then: backhaul-agent enrol --file {identity.name}""")
    if done["leaving"]:
        click.echo(
            f"The lanes of {', '.join(done['leaving'])} are read until nothing of them is missing;"
            " the same command then drops them."
        )
    if done["dropped"]:
        click.echo(f"Dropped, all of them is here: the lanes of {', '.join(done['dropped'])}.")

"""`backhaul-agent enrol`: this vehicle's files, of the document that the hub made about it."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import click

from backhaul_agent.errors import VehicleFilesError
from backhaul_agent.vehicle_files import (
    AGENT_TOML,
    DEFAULT_PORT,
    DEFAULT_STATE_DIR,
    LEAF_CONF,
    LEAF_CONF_BEFORE,
    Directory,
    Wishes,
    files_of,
)
from backhaul_codec.identity import DOCUMENT_BYTES_MAX, Identity, IdentityError, decode_identity

if TYPE_CHECKING:
    from backhaul_agent.vehicle_files import File
    from backhaul_codec.identity import LinkMode


@click.command(name="enrol")
@click.option(
    "--file",
    "document",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="The identity document: devices/VID/identity.json of the hub.",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    default=Path("/etc/backhaul"),
    show_default=True,
    help="Where this vehicle's files are kept.",
)
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path),
    help=f"Where ledger and streams are kept.  [default: {DEFAULT_STATE_DIR}, or as it is]",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help=f"Port of the leaf server for local programs.  [default: {DEFAULT_PORT}, or as it is]",
)
@click.option(
    "--link-mode",
    type=click.Choice(["always", "scheduled", "on-demand"]),
    help="When the link is up.  [default: as the document says, or as it is]",
)
def command(
    document: Path,
    directory: Path,
    state_dir: Path | None,
    port: int | None,
    link_mode: LinkMode | None,
) -> None:
    """Make this vehicle's files of an identity document.

    Run it again with a newer document: what the hub says is taken over, what you changed in
    agent.toml stays, and keys stay. leaf.conf is written anew; the former one is kept beside it.
    """
    wishes = Wishes(
        client_port=port, state_dir=state_dir and state_dir.absolute(), link_mode=link_mode
    )
    target = Directory(directory)
    files = files_of(
        _read(document), wishes, target.path, target.read(), lambda: secrets.token_urlsafe(24)
    )
    target.write(files)
    for line in _said(files, target.path):
        click.echo(line)


def _read(path: Path) -> Identity:
    try:
        with path.open("rb") as file:
            return decode_identity(file.read(DOCUMENT_BYTES_MAX + 1))
    except OSError as error:
        raise VehicleFilesError(
            f"{path} cannot be read: {error.strerror}",
            hint="`backhaul-hub add-device` writes the document",
        ) from error
    except IdentityError as error:
        raise VehicleFilesError(f"{path}: {error}", hint="have the hub write it again") from error


def _said(files: list[File], directory: Path) -> list[str]:
    """Return what was done, and what is to be done now."""
    lines = [f"{_what(file):<10} {directory / file.name}" for file in files]
    done = {file.name for file in files if file.changed}
    if LEAF_CONF_BEFORE in done:
        lines.append("If you had changed leaf.conf by hand, do so again.")
    if LEAF_CONF in done:
        lines.append(f"Start the leaf server (again): nats-server -c {directory / LEAF_CONF}")
    if done & {AGENT_TOML, LEAF_CONF}:
        lines.append(
            f"Start the agent (again): backhaul-agent run --config {directory / AGENT_TOML}"
        )
    return lines


def _what(file: File) -> str:
    if file.new:
        return "written"
    return "changed" if file.changed else "as it was"

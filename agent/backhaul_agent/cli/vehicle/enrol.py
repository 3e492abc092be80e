"""`backhaul-agent enrol`: Make this vehicle's files out of the document that the hub made about it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TextIO

import click

from backhaul_agent.cli.options import directory_option
from backhaul_agent.enrol.by_token import ask_hub, begin, done
from backhaul_agent.enrol.request import new_key
from backhaul_agent.enrol.systemd_units import UNITS, start_units
from backhaul_agent.enrol.vehicle_files import (
    AGENT_TOML,
    CA,
    DEFAULT_PORT,
    DEFAULT_STATE_DIR,
    DEVICE_CREDS,
    LEAF_CONF,
    LEAF_CONF_BEFORE,
    Directory,
    File,
    Wishes,
    files_of,
    make_state_directories,
)
from backhaul_agent.errors import EnrolmentFailedError, VehicleFilesError
from backhaul_agent.leaf.config_text import APPS_FILE
from backhaul_codec.protocol.enrolment import (
    TOKEN_CHARACTERS_MAX,
    EnrolmentError,
    Token,
    read_token,
)
from backhaul_codec.protocol.identity import (
    DOCUMENT_BYTES_MAX,
    Identity,
    IdentityError,
    LinkMode,
    decode_identity,
)
from backhaul_runtime.clock import SystemClock


@click.command(name="enrol")
@click.argument("word", metavar="[TOKEN]", default="")
@click.option(
    "--token-file",
    type=click.File(),
    help="Read the token from a file, so that no list of processes shows it; - is standard input.",
)
@click.option(
    "--file",
    "document",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Instead of a token the identity document: devices/VID/identity.json of the hub.",
)
@directory_option
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
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0),
    default=300.0,
    show_default=True,
    help="For so many seconds the hub may not answer. The token is not lost then.",
)
@click.option(
    "--open",
    "open_",
    is_flag=True,
    help="Let programs without a key in, as `backhaul-agent app open` does.",
)
@click.option("--start", is_flag=True, help="Enable and start the systemd units, too.")
def command(
    word: str,
    token_file: TextIO | None,
    document: Path | None,
    directory: Path,
    state_dir: Path | None,
    port: int | None,
    link_mode: LinkMode | None,
    wait_s: float,
    open_: bool,
    start: bool,
) -> None:
    """Make this vehicle one of a hub's, with a token of `backhaul-hub enrol`.

    The vehicle makes its key itself; the hub gets to know its public part only. Whatever interrupts
    this, run it again with the same token.

    With --file: make this vehicle's files of a document that was brought here. With a newer one,
    what the hub says is taken over, what you changed in agent.toml stays, and keys stay. leaf.conf
    is written anew; the former one is kept beside it.
    """
    if bool(word) + (token_file is not None) + (document is not None) != 1:
        raise click.UsageError("one of TOKEN, --token-file and --file is needed")
    wishes = Wishes(
        client_port=port,
        state_dir=state_dir and state_dir.absolute(),
        link_mode=link_mode,
        open=open_,
    )
    target = Directory(directory)
    if document is not None:
        identity = _read(document)
        with target.alone():
            _write(identity, wishes, target)
    else:
        token = _token(word, token_file)
        with target.alone():
            key = begin(token, target, wishes)
            asking = ask_hub(token, key, target.path, SystemClock(), wait_s=wait_s, report=_report)
            _write(asyncio.run(asking), wishes, target)
            done(token, target)
    if start:
        start_units()
        click.echo(f"Enabled and started: {', '.join(UNITS)}")


def _token(word: str, file: TextIO | None) -> Token:
    try:
        return read_token(file.read(TOKEN_CHARACTERS_MAX + 1) if file else word)
    except (OSError, UnicodeDecodeError, EnrolmentError) as error:
        raise EnrolmentFailedError(
            f"no token: {error}", hint="at the hub: backhaul-hub enrol VID"
        ) from error


def _report(line: str) -> None:
    click.echo(line, err=True)


def _write(identity: Identity, wishes: Wishes, target: Directory) -> None:
    found = target.read()
    files = files_of(identity, wishes, target.path, found, new_key)
    make_state_directories(files, target.path)
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
    """Return the steps done, and the steps to do now."""
    lines = [f"{_what(file):<10} {directory / file.name}" for file in files]
    done = {file.name for file in files if file.changed}
    if LEAF_CONF_BEFORE in done:
        lines.append("If you had changed leaf.conf by hand, do so again.")
    if done & {LEAF_CONF, DEVICE_CREDS, CA}:
        lines.append(f"Start the leaf server (again): nats-server -c {directory / LEAF_CONF}")
    elif APPS_FILE in done:
        lines.append("Start the leaf server again, for it to read who may log in.")
    if done & {AGENT_TOML, LEAF_CONF}:
        lines.append(
            f"Start the agent (again): backhaul-agent run --config {directory / AGENT_TOML}"
        )
    return lines


def _what(file: File) -> str:
    if file.new:
        return "written"
    return "changed" if file.changed else "as it was"

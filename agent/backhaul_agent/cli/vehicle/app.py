"""`backhaul-agent app`: Give local programs logins and rights, and take them back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import click
import msgspec

from backhaul_agent.apps.rights import App, Apps, read_apps, require_app_name
from backhaul_agent.cli.options import as_json_option, directory_option
from backhaul_agent.config_file import load
from backhaul_agent.enrol.agent_toml import SYSTEM_KEY
from backhaul_agent.enrol.request import new_key
from backhaul_agent.enrol.vehicle_files import (
    AGENT_TOML,
    APPS_JSON,
    Directory,
    File,
    apps_files,
)
from backhaul_agent.errors import LeafReloadError, VehicleFilesError
from backhaul_agent.leaf.login import login_options
from backhaul_agent.leaf.reload import lets_in, reload_leaf
from backhaul_codec.protocol.credentials import CredentialsError, parse_seed

# nats-server 2.15.1 lets a new account ask others only after it has read the same file again.
RELOADS = 2


@click.group(name="app")
def command() -> None:
    """Say which local programs may log in to the leaf server, and their rights there."""


@command.command()
@click.argument("name")
@click.option(
    "--publish", multiple=True, metavar="NODE", help="Publish its points.  [default: NAME]"
)
@click.option("--event", multiple=True, metavar="KIND", help="Report events of this kind.")
@click.option(
    "--read", multiple=True, metavar="NODE", help="Read its state, configuration and history."
)
@click.option(
    "--set", "set_", multiple=True, metavar="NODE", help="Write its state and configuration."
)
@click.option(
    "--command", "commands", multiple=True, metavar="CMD", help="Carry out operators' commands."
)
@click.option("--artifacts", is_flag=True, help="Fetch files from the hub, and send files there.")
@directory_option
def add(
    name: str,
    publish: tuple[str, ...],
    event: tuple[str, ...],
    read: tuple[str, ...],
    set_: tuple[str, ...],
    commands: tuple[str, ...],
    artifacts: bool,
    directory: Path,
) -> None:
    """Let program NAME in with a key of its own, with exactly these rights.

    Each option may be given several times. For a program that is there already: its key stays, its
    rights are these from now on.
    """
    target, key_file = Directory(directory), f"apps/{require_app_name(name)}.nk"
    with target.alone():
        found = target.read(key_file)
        seed = found.get(key_file) or new_key().text()
        app = App(
            key=_public_key(seed, target.path / key_file),
            publish=publish or (name,),
            event=event,
            read=read,
            set=set_,
            command=commands,
            artifacts=artifacts,
        )
        apps = _apps(found, target.path).with_app(name, app)
        key = File(key_file, seed, 0o600, found.get(key_file))
        target.write([key, *apps_files(apps, found)])
    click.echo(f"{name}: {_rights(app)}")
    click.echo(f"Its key, for the user that it runs as and nobody else: {target.path / key_file}")
    _take_over(target.path, {"nkey": str(target.path / key_file)}, wanted=True)


@command.command()
@click.argument("name")
@directory_option
def rm(name: str, directory: Path) -> None:
    """Let program NAME in no more: its connection is cut, its key deleted."""
    target = Directory(directory)
    with target.alone():
        found = target.read()
        target.write(apps_files(_apps(found, target.path).without(name), found))
        key = target.path / "apps" / f"{name}.nk"
        # The key goes last: with it the server is asked whether it still lets it in. Held until then: an
        # `add` meanwhile would go on with a key that is about to go.
        _take_over(target.path, {"nkey": str(key)} if key.exists() else None, wanted=False)
        key.unlink(missing_ok=True)


@command.command()
@as_json_option
@directory_option
def ls(as_json: bool, directory: Path) -> None:
    """Show the programs and their rights."""
    target = Directory(directory)
    apps = _apps(target.read(), target.path)
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(apps), indent=2))
        return
    for name, app in apps.apps.items():
        click.echo(f"{name}: {_rights(app)}")
    if apps.open:
        click.echo("Whoever has no key may do all that programs may; `app close` ends that.")


@command.command("open")
@directory_option
def open_(directory: Path) -> None:
    """Let programs without a key in, to do all that programs may: for the bench, not for the road."""
    _set_open(directory, wanted=True)


@command.command()
@directory_option
def close(directory: Path) -> None:
    """Let nobody in without a key, as it is at first."""
    _set_open(directory, wanted=False)


def _set_open(directory: Path, *, wanted: bool) -> None:
    target = Directory(directory)
    with target.alone():
        found = target.read()
        apps = msgspec.structs.replace(_apps(found, target.path), open=wanted)
        target.write(apps_files(apps, found))
    _take_over(target.path, {}, wanted=wanted)


def _apps(found: dict[str, str], directory: Path) -> Apps:
    if APPS_JSON not in found:
        raise VehicleFilesError(
            f"there is no {directory / APPS_JSON}", hint="first: backhaul-agent enrol"
        )
    return read_apps(found[APPS_JSON])


def _public_key(seed: str, path: Path) -> str:
    try:
        return parse_seed(seed).public_key
    except CredentialsError as error:
        raise VehicleFilesError(f"{path}: {error}", hint="delete it: a new one is made") from error


def _rights(app: App) -> str:
    """Return a program's rights, in words."""
    words = {
        "publishes": app.publish,
        "reports": app.event,
        "reads": app.read,
        "sets": app.set,
        "carries out": app.command,
        "moves": ("files",) if app.artifacts else (),
    }
    return "; ".join(f"{verb} {', '.join(names)}" for verb, names in words.items() if names)


def _take_over(directory: Path, login: dict[str, str] | None, *, wanted: bool) -> None:
    """Have a running leaf server take it over, and see whether ``login`` is let in as wanted."""
    url = load(directory / AGENT_TOML).nats.url
    system = login_options(nkey=str(directory / SYSTEM_KEY))
    tried = None if login is None else login_options(**login)
    try:
        taken = asyncio.run(_reloaded(url, system, tried, wanted=wanted))
    except LeafReloadError as error:
        if error.refused:
            raise
        click.echo(f"It is so from the leaf server's next start on: {error}", err=True)
        return
    if taken:
        click.echo("The leaf server has taken it over.")
        return
    click.echo(
        "The leaf server read its configuration, and it is not so: start it again."
        " Under systemd it may read copies made at its start (docs/apps.md).",
        err=True,
    )


async def _reloaded(
    url: str, system: dict[str, Any], login: dict[str, Any] | None, *, wanted: bool
) -> bool:
    await reload_leaf(url, system, times=RELOADS)
    return login is None or await lets_in(url, login) is wanted

"""`backhaul-hub user add|link|ls|rm`: Give people rights to a part of the tree, and take them back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import click

from backhaul_codec.state.point_text import utc
from backhaul_hub.cli._act import act, pages
from backhaul_hub.cli._options import directory_option, json_option, seconds_option
from backhaul_hub.config import load
from backhaul_hub.errors import ConfigError
from backhaul_hub.page_settings import page_url
from backhaul_hub.people.identity import May, require_person_name
from backhaul_hub.private_files import private_directory, write_private
from backhaul_hub.tls.files import has_tls
from backhaul_hub.tls.setup import is_loopback
from backhaul_runtime.clock import SystemClock


@click.group()
def user() -> None:
    """Give people rights to a part of the tree, and take them back."""


@user.command()
@click.argument("name")
@click.option(
    "--group", required=True, metavar="NODE", help="A group or a device; `fleet` is everything."
)
@click.option(
    "--may",
    type=click.Choice([each.value for each in May]),
    default=May.READ.value,
    show_default=True,
    help="What NAME may do; each includes those before it.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    show_default="people/NAME.creds in the hub directory",
    help="Where the credentials are written.",
)
@directory_option
@json_option
def add(name: str, group: str, may: str, out: Path | None, directory: Path, as_json: bool) -> None:
    """Make credentials for NAME, a person with the rights to all below NODE, now and later."""
    require_person_name(name)  # it names a file
    target = out or directory / "people" / f"{name}.creds"
    nats = load(directory).nats
    person = {"name": name, "group": group, "may": may}
    try:
        private_directory(target.parent)  # before anybody is added whose login could not be written
        login = act(directory, "user-add", person)["credentials"]
        write_private(target, login)
    except OSError as error:
        raise ConfigError(f"{target}: {error.strerror}") from error
    if as_json:
        ca = str(directory / nats.ca) if nats.ca else None
        said = {"credentials": str(target), "server": nats.url, "ca": ca}
        click.echo(json.dumps(person | said))
        return
    click.echo(
        f"{name} may {may} below {group}. Bring this file to {name}, it is a secret:\n  {target}"
    )
    trust = ""
    if nats.ca:
        click.echo(f"and this, which is none:\n  {directory / nats.ca}")
        trust = f" --ca {Path(nats.ca).name}"
    click.echo(f"then: backhaul-hub tree --creds {target.name} --server {nats.url}{trust}")


@user.command()
@click.argument("name")
@click.option(
    "--for",
    "for_s",
    default="15m",
    show_default=True,
    callback=seconds_option(86_400),
    metavar="TIME",
    help="For how long it may be used: 90s, 15m, 2h.",
)
@directory_option
@json_option
def link(name: str, for_s: float, directory: Path, as_json: bool) -> None:
    """Print a link that logs a browser in as NAME, once.

    The browser makes a key of its own, which stays there. Its login has the rights of NAME, and ends by
    itself after [page] session_h hours; `user rm` ends it at once. Send the link to NAME in private: the
    hub takes the first person who opens it for NAME.
    """
    config = load(directory)
    if not config.page.listen:
        raise ConfigError("hub.toml names no place for the page", hint="see: [page], docs/page.md")
    tls = has_tls(directory) and not is_loopback(config.page.listen.rpartition(":")[0])
    clock = SystemClock()
    token = act(directory, "user-link", {"name": name, "for_s": for_s})["token"]
    url = f"{page_url(config.page, tls=tls)}/#/login/{token}"
    if as_json:
        click.echo(json.dumps({"name": name, "url": url, "for_s": for_s}))
        return
    click.echo(url)
    until = utc(clock.now_ns() + round(for_s * 1e9))
    click.echo(f"Once, until {until}, as {name}.", err=True)


@user.command("ls")
@directory_option
@json_option
def list_(directory: Path, as_json: bool) -> None:
    """List who has credentials."""
    found = asyncio.run(pages(directory, "users", {}))
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for each in found:
        lost = "" if each["in_tree"] else "  (not in the tree: sees nothing)"
        rights = f"{each['name']}  may {each['may']} below {each['group']}"
        click.echo(f"{rights}{lost}  since {utc(each['added_ns'])}")
    if not found:
        click.echo("no users", err=True)


@user.command()
@click.argument("name")
@directory_option
@json_option
def rm(name: str, directory: Path, as_json: bool) -> None:
    """Withdraw NAME's credentials, for ever, and cut its connections."""
    problem = act(directory, "user-rm", {"name": name})["problem"]
    if as_json:
        click.echo(json.dumps({"name": name, "withdrawn": True, "told": not problem}))
    else:
        click.echo(f"{name}'s credentials are withdrawn")
    if problem:
        click.echo(
            f"The hub was not told ({problem}); it learns of it when its control plane runs.",
            err=True,
        )

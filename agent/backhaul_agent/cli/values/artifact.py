"""`backhaul-agent artifact get | put | ls | cancel`: Fetch files that the hub keeps, and send files there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from backhaul_agent.cli.asking import ask, print_json
from backhaul_agent.cli.options import as_json_option, server_options
from backhaul_agent.client.artifacts import ArtifactClient
from backhaul_agent.client.client import Agent
from backhaul_agent.errors import Code, RefusedError
from backhaul_codec.programs.command_line import harmless, own_terminal


@click.group(name="artifact")
def command() -> None:
    """Fetch files that the hub keeps, and send files there.

    The agent does it, beside readings and after them; this only asks and shows. Broken off by
    whatever, both go on from where they were.
    """


@command.command()
@click.argument("name")
@click.argument("dest", type=click.Path(path_type=Path))
@server_options
def get(name: str, dest: Path, login: dict[str, Any]) -> None:
    """Fetch artifact NAME into DEST (a file or directory), which appears when all is checked."""
    target = dest / name if dest.is_dir() else dest
    with _refusing(target):
        job = ask(login, lambda agent: ArtifactClient(agent).fetch(name, target, _Line()))
    click.echo(f"{target}: {job['bytes']} bytes, SHA-256 {job['digest']}")


@command.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--name", default="", help="Its name at the hub.  [default: the file's]")
@click.option("--no-wait", is_flag=True, help="Return once the agent has a copy of its own.")
@server_options
def put(file: Path, name: str, no_wait: bool, login: dict[str, Any]) -> None:
    """Send FILE to the hub, as it is now.

    Once the agent has its copy, the file is sent whatever happens here; one of the same name that
    was sent before is replaced.
    """

    async def send(agent: Agent) -> str:
        files = ArtifactClient(agent)
        number = await files.hand_over(file, name, _Line())
        if not no_wait:
            await files.sent(number, _Line())
        return number

    with _refusing(file):
        number = ask(login, send)
    click.echo(f"{name or file.name}: {'queued as ' + number if no_wait else 'stored at the hub'}")


@command.command()
@as_json_option
@server_options
def ls(as_json: bool, login: dict[str, Any]) -> None:
    """Show slots, files being fetched, and files that wait to be sent."""
    status = ask(login, lambda agent: ArtifactClient(agent).status())
    if as_json:
        print_json(status)
        return
    for each in status["files"]:
        click.echo(f"{each['kind']:<7} {each['id']:<17} {each['name']}: {describe(each)}")


@command.command()
@click.argument("number", metavar="ID")
@server_options
def cancel(number: str, login: dict[str, Any]) -> None:
    """Give up sending a file; `ls` shows its ID."""
    ask(login, lambda agent: ArtifactClient(agent).cancel(number))


def describe(job: dict[str, Any]) -> str:
    """Return how far a file has got, for people."""
    text = f"{job['state']}, {job['moved'] / 1e6:.1f} of {job['bytes'] / 1e6:.1f} MB"
    if job.get("failure"):
        text += f": {job['failure']} (tried again in {job['retry_s']:.0f} s)"
    return text


class _Line:
    """One line on stderr that is written over, where that is a terminal."""

    def __init__(self) -> None:
        self._shown = ""

    def __call__(self, job: dict[str, Any]) -> None:
        text = describe(job)
        if sys.stderr.isatty():
            line = f"\r{harmless(text):<{len(self._shown)}}"
            click.echo(line, nl=False, file=own_terminal())
            self._shown = text
            if job["moved"] == job["bytes"] and job["state"] in ("ready", "handing over"):
                click.echo(err=True)


@contextmanager
def _refusing(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RefusedError(Code.STORAGE, f"{place}: {error.strerror}") from error

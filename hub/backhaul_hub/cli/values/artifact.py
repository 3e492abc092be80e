"""`backhaul-hub artifact put | ls | get | rm`: Keep files for vehicles, and fetch the uploads of vehicles."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from backhaul_codec.programs.command_line import harmless, own_terminal
from backhaul_codec.protocol import blobs
from backhaul_hub.artifacts.object_store import Artifact, Objects
from backhaul_hub.artifacts.uploads import PREFIX, object_name
from backhaul_hub.cli._ask import hub_client
from backhaul_hub.cli._options import awaited, directory_option, json_option
from backhaul_hub.cli._printing import print_json
from backhaul_hub.errors import ArtifactError

_device_option = click.option(
    "--device", default="", metavar="VID", help="What this device has uploaded, not an artifact."
)


@click.group()
def artifact() -> None:
    """Keep files for vehicles, and fetch the files that vehicles have uploaded.

    A vehicle fetches an artifact into a slot once it is told to:
    backhaul-hub set VID artifact.SLOT=NAME@SHA256, the last part as `ls` shows it.
    """


@artifact.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--name", default="", help="Under which vehicles know it.  [default: the file's]")
@click.option("--description", default="", help="For people.")
@json_option
@directory_option
@awaited
async def put(file: Path, name: str, description: str, as_json: bool, directory: Path) -> None:
    """Store FILE. It takes the place of an artifact of the same name once all of it is there."""
    name = name or file.name
    if not blobs.is_name(name):
        raise ArtifactError(
            f"{name!r} is no name for an artifact",
            hint="letters, digits and . _ + - are, 128 at most: say --name",
        )

    try:
        with file.open("rb", buffering=0) as source, _progress(name, _size(file)) as moved:
            async with hub_client(directory) as client:
                reader = _Counted(source, moved)
                stored = await Objects(client).put(name, reader, description=description)
    except OSError as error:
        raise ArtifactError(f"{file}: {error.strerror}") from error
    _show([stored], as_json=as_json)


@artifact.command()
@_device_option
@click.option("--uploads", is_flag=True, help="What all devices have uploaded.")
@json_option
@directory_option
@awaited
async def ls(device: str, uploads: bool, as_json: bool, directory: Path) -> None:
    """List artifacts as NAME@SHA256, or devices' uploads."""
    prefix = object_name(device, "") if device else PREFIX if uploads else ""
    async with hub_client(directory) as client:
        found = await Objects(client).list()
    shown = [
        each
        for each in found
        if each.name.startswith(prefix) and (prefix or not each.name.startswith(PREFIX))
    ]
    _show(shown, as_json=as_json)


@artifact.command()
@click.argument("name")
@click.argument("dest", required=False, type=click.Path(path_type=Path))
@_device_option
@directory_option
@awaited
async def get(name: str, dest: Path | None, device: str, directory: Path) -> None:
    """Fetch NAME into DEST (a file or directory; else here). DEST appears when all is checked."""
    target = _target(dest, name)
    full = object_name(device, name) if device else name
    async with hub_client(directory) as client:
        objects = Objects(client)
        found = await objects.info(full)
        if found is None:
            raise _missing(full)
        partial = target.with_name(f".{target.name}.part")
        try:
            with partial.open("wb") as file, _progress(name, found.size) as moved:
                async for data in objects.content(found):
                    file.write(data)
                    moved(len(data))
                file.flush()
                os.fsync(file.fileno())
            partial.replace(target)
        except OSError as error:
            raise ArtifactError(f"{target}: {error.strerror}") from error
        finally:
            partial.unlink(missing_ok=True)
    click.echo(f"{target}: {found.size:,} bytes, SHA-256 {found.digest.hex()}")


@artifact.command()
@click.argument("name")
@_device_option
@directory_option
@awaited
async def rm(name: str, device: str, directory: Path) -> None:
    """Remove NAME. Vehicles that hold it already keep it."""
    full = object_name(device, name) if device else name
    async with hub_client(directory) as client:
        if not await Objects(client).remove(full):
            raise _missing(full)
    click.echo(f"removed {full}")


class _Counted:
    """A file that says how much of it was read."""

    def __init__(self, file: Any, moved: Callable[[int], None]) -> None:
        self._file = file
        self._moved = moved

    def readinto(self, buffer: Any, /) -> int:
        count: int = self._file.readinto(buffer)
        self._moved(count)
        return count


@contextmanager
def _progress(name: str, size: int) -> Iterator[Callable[[int], None]]:
    """Show a bar on stderr, where that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

    columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn())
    console = Console(file=own_terminal())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(harmless(name), total=size)
        yield lambda count: bar.advance(task, count)


def _show(artifacts: list[Artifact], *, as_json: bool) -> None:
    if as_json:
        rows = [
            {
                "name": each.name,
                "digest": each.digest.hex(),
                "bytes": each.size,
                "stored": each.stored,
                "version": each.version,
            }
            for each in artifacts
        ]
        print_json({"artifacts": rows})
        return
    for each in artifacts:
        click.echo(f"{each.version}  {each.size:,} bytes  {each.stored}")


def _size(file: Path) -> int:
    return file.stat().st_size


def _target(dest: Path | None, name: str) -> Path:
    return dest if dest is not None and not dest.is_dir() else (dest or Path()) / _plain(name)


def _plain(name: str) -> str:
    """Return a name that a file may have: others named the objects in the store.

    Raises:
        ArtifactError: it leads to another directory.
    """
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ArtifactError(f"{name!r} is a path", hint="say the file that it is to be in, as DEST")
    return name


def _missing(name: str) -> ArtifactError:
    return ArtifactError(f"there is no artifact {name}", hint="backhaul-hub artifact ls")

"""`backhaul-hub import`: Bring a fleet's old logs into the history, each row once."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import sys
from collections.abc import Iterator
from collections.abc import Mapping as MappingOf
from contextlib import contextmanager
from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path
from typing import Any

import click
from nats.aio.client import Client

from backhaul_codec.errors import MappingError
from backhaul_codec.programs.command_line import INTERRUPTED
from backhaul_codec.recordings.mapping import DeviceOf, Mapping
from backhaul_codec.recordings.mapping import load as load_mapping
from backhaul_codec.recordings.progress import ProgressScreen
from backhaul_codec.state.point_text import shown
from backhaul_hub.cli._act import done
from backhaul_hub.cli._ask import hub_client
from backhaul_hub.cli._options import directory_option
from backhaul_hub.cli.fleet.add_device import keep_document
from backhaul_hub.config import HubConfig, load
from backhaul_hub.errors import ConfigError, HubError, RegistryError
from backhaul_hub.imports.files import FoundFiles, look
from backhaul_hub.imports.run import Import, ImportOutcome
from backhaul_hub.lane_records.imported_rows import Source
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.streams.streams import import_stream, reconcile
from backhaul_runtime.clock import SystemClock

_CLOCK = SystemClock()
_SHOWN = 20
_DEVICES = 1000


@click.command("import")
@directory_option
@click.argument(
    "logs", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR"
)
@click.option(
    "--map",
    "map_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help="Which column is what, and in [device] whose rows are whose: docs/replay.md.",
)
@click.option(
    "--add-unknown",
    is_flag=True,
    help="Add devices that this hub does not know, as add-device does.  [default: refuse, with a list]",
)
@click.option(
    "--again",
    is_flag=True,
    help="Publish also what is kept: the stream was lost before Spark had read it. Repeats fall there.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def import_(
    directory: Path, logs: Path, map_path: Path, add_unknown: bool, again: bool, as_json: bool
) -> None:
    """Bring the .csv and .parquet files below DIR into the history, each row once.

    A second run adds nothing, one that was ended goes on, and of files that have grown only the new rows
    are imported. `backhaul-spark ingest` reads them like all others; `completeness` says `imported` of
    hours that no vehicle has spoken of. Exit 1 unless all was kept.
    """
    mapping = load_mapping(map_path)
    if mapping.device is None:
        raise MappingError(f"{map_path}: it needs a [device]: whose rows are whose")
    work = _Work(
        directory, logs.absolute(), mapping, mapping.device, add_unknown=add_unknown, again=again
    )
    try:
        with _alone(directory):
            asyncio.run(work.run())
    except KeyboardInterrupt:
        _print(work, as_json=as_json)
        click.echo("stopped: the same command goes on from here", err=True)
        sys.exit(INTERRUPTED)
    except HubError:
        _print(work, as_json=as_json)
        raise
    _print(work, as_json=as_json)
    if work.outcome.refused or work.outcome.points_refused:
        sys.exit(1)


@dataclass(eq=False)
class _Work:
    """One run, and how far it came."""

    directory: Path
    logs: Path
    mapping: Mapping
    of: DeviceOf
    _: KW_ONLY
    add_unknown: bool
    again: bool

    def __post_init__(self) -> None:
        self.outcome = ImportOutcome()
        self.found = FoundFiles()

    async def run(self) -> None:
        config = load(self.directory)
        looking = ProgressFiles()
        self.found = look(self.logs, self.mapping, self.of, looking.show)
        async with hub_client(self.directory) as client:
            book = AskedBook(self.directory, client)
            await self._know_all(book)
            await self._bring(config, client, book)

    async def _bring(self, config: HubConfig, client: Client, book: AskedBook) -> None:
        screen = ProgressScreen(self.found.rows, 0, _CLOCK.monotonic_s)
        api = JetStreamApi(client)
        await reconcile(api, import_stream(config))
        work = Import(
            *(self.logs, self.mapping, self.of, book, api, _CLOCK, screen.show), again=self.again
        )
        self.outcome = work.outcome
        await work.run(self.found)
        screen.end()

    async def _know_all(self, book: AskedBook) -> None:
        """Refuse devices that the hub does not know, or add them. Raises: HubError."""
        unknown = await book.unknown(list(self.found.devices))
        if not unknown:
            return
        if not self.add_unknown:
            more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
            raise RegistryError(
                f"this hub does not know {', '.join(unknown[:_SHOWN])}{more}: nothing was imported",
                hint="say --add-unknown, or what they are called here in [device] names",
            )
        for device in unknown:
            added = await book.ask("add-device", {"device": device, "told": False})
            keep_document(self.directory, device, added["document"])
        click.echo(f"added: {', '.join(unknown)}", err=True)
        if problem := (await book.ask("reload", {}))["problem"]:
            click.echo(
                f"The hub was not told ({problem}): it learns of them at its start", err=True
            )


@dataclass(frozen=True, slots=True)
class AskedBook:
    """The book of imports (`imports.book`), asked as each command line asks."""

    directory: Path
    client: Client

    async def ask(
        self, service: str, question: dict[str, Any], *, reads: bool = False
    ) -> dict[str, Any]:
        """Return the answer to one question. Raises: HubError."""
        return await done(self.directory, service, question, reads=reads, client=self.client)

    async def unknown(self, devices: list[str]) -> list[str]:
        """Return which of these devices the hub does not know, in their order."""
        found: list[str] = []
        for first in range(0, len(devices), _DEVICES):
            some = devices[first : first + _DEVICES]
            found += (await self.ask("import-start", {"devices": some}, reads=True))["unknown"]
        return found

    async def stream(self) -> tuple[str, int] | None:
        """Return when the stream was made that was published to, and how far it went at least."""
        noted = (await self.ask("import-start", {}, reads=True))["stream"]
        return None if noted is None else (noted[0], noted[1])

    async def source(self, source: str) -> Source | None:
        """Return how far a recording is kept; None: nothing of it."""
        found = (await self.ask("import-look", {"source": source}, reads=True))["source"]
        return None if found is None else Source(**found)

    async def begin(self, going: Source, stretch: str) -> int:
        """Note rows that are to be published; return their epoch."""
        question = {"source": asdict(going), "stretch": stretch}
        epoch: int = (await self.ask("import-begin", question))["epoch"]
        return epoch

    async def kept(self, kept: Source, hours: MappingOf[int, int], created: str, seq: int) -> None:
        """Note that they are published."""
        question = {"source": asdict(kept), "hours": dict(hours), "created": created, "seq": seq}
        await self.ask("import-kept", question)


class ProgressFiles:
    """Says now and then which file is looked at."""

    def __init__(self) -> None:
        self._said_s = _CLOCK.monotonic_s()

    def show(self, path: Path) -> None:
        """Say it, if nothing was said for a while."""
        if _CLOCK.monotonic_s() - self._said_s > 2.0:
            self._said_s = _CLOCK.monotonic_s()
            click.echo(f"looking at {path.name}", err=True)


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Hold the lock of imports. Raises: ConfigError: another one has it."""
    try:
        descriptor = os.open(directory / "import.lock", os.O_WRONLY | os.O_CREAT, 0o600)
    except OSError as error:
        raise ConfigError(f"{directory}: {error.strerror}") from error
    with os.fdopen(descriptor, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(
                "another import into this hub is under way", hint="wait for it to end"
            ) from error
        yield


def _print(work: _Work, *, as_json: bool) -> None:
    outcome, found = work.outcome, work.found
    said: dict[str, Any] = asdict(outcome) | {
        "files": len(found.files),
        "rows_found": found.rows,
        "devices": len(found.devices),
    }
    if as_json:
        print(json.dumps(said))
        return
    print(
        f"{len(found.files):,} files, {len(found.devices):,} devices, {found.rows:,} rows: "
        f"{outcome.rows:,} imported with {outcome.points:,} points, {outcome.before:,} kept before"
    )
    if outcome.untimed:
        print(f"  {outcome.untimed:,} rows without a valid time left out")
    if outcome.points_refused:
        print(f"  {outcome.points_refused:,} points refused: {shown(str(outcome.last_refusal))}")
    for refused in outcome.refused[:_SHOWN]:
        whose = f" of {refused.device}" if refused.device else ""
        print(f"  not imported: {refused.file}{whose}: {shown(refused.why)}", file=sys.stderr)
    if len(outcome.refused) > _SHOWN:
        print(f"  and {len(outcome.refused) - _SHOWN:,} more (--json)", file=sys.stderr)

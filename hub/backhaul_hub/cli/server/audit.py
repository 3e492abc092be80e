"""`backhaul-hub audit`: Print the acts of people and operators, and check that their log is whole."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import click
import msgspec

from backhaul_codec.state.point_text import shown, utc
from backhaul_hub.audit.entry import AuditEntry
from backhaul_hub.audit.trail import TrailVerdict, follow
from backhaul_hub.cli._act import done
from backhaul_hub.cli._ask import hub_client
from backhaul_hub.cli._options import awaited, directory_option, json_option, time_ns
from backhaul_hub.errors import HubError


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which entries are printed, and how."""

    since_ns: int
    who: str
    what: str
    names: dict[str, str] = field(default_factory=dict)

    def named(self, entry: AuditEntry) -> AuditEntry | None:
        """Return an entry with the names that are known, None if it is not wanted."""
        who, about = (self.names.get(each, each) for each in (entry.who, entry.about))
        wanted = (
            entry.at_ns >= self.since_ns and self.who in ("", who) and self.what in ("", entry.what)
        )
        return msgspec.structs.replace(entry, who=who, about=about) if wanted else None


@click.group(invoke_without_command=True)
@click.option("--since", "since_ns", callback=time_ns, metavar="TIME", help="UTC; default: all.")
@click.option("--who", default="", metavar="NAME", help="Only of this person, or operator USER.")
@click.option("--what", default="", metavar="ACT", help="Only these: command, erase, user-add ...")
@json_option
@directory_option
@click.pass_context
@awaited
async def audit(
    context: click.Context,
    since_ns: int | None,
    who: str,
    what: str,
    as_json: bool,
    directory: Path,
) -> None:
    """Print the acts of people and operators, oldest first.

    With --json an object a line. In the place of a name that was erased stands a pseudonym.
    """
    if context.invoked_subcommand is not None:
        return
    said = await done(directory, "audit-names", {}, reads=True)
    wanted = _Wanted(since_ns or 0, who, what, said["names"])

    def take(entry: AuditEntry) -> None:
        if (named := wanted.named(entry)) is not None:
            click.echo(_as_json(named) if as_json else _line(named))

    async with hub_client(directory) as client:
        _require_whole(await follow(client, (said["seq"], said["digest"]), take))


@audit.command()
@json_option
@directory_option
@awaited
async def verify(directory: Path, as_json: bool) -> None:
    """Check that no entry was taken out, changed or put in between, and that none is missing at the end.

    Exit status 1 if one was.
    """
    said = await done(directory, "audit-names", {}, reads=True)
    async with hub_client(directory) as client:
        verdict = await follow(client, (said["seq"], said["digest"]))
    if as_json:
        click.echo(json.dumps(verdict._asdict()))
    else:
        click.echo(f"{verdict.entries:,} entries in {verdict.messages:,} messages")
    _require_whole(verdict)


def _require_whole(verdict: TrailVerdict) -> None:
    if what := verdict.words():
        raise HubError(
            f"the audit log is not as it was written: {what}",
            hint="a backup's copy says what stood there; restore keeps the log of the server where that is whole",
        )


def _as_json(entry: AuditEntry) -> str:
    return msgspec.json.encode(entry).decode()


def _line(entry: AuditEntry) -> str:
    words = [utc(entry.at_ns)[:19] + "Z", shown(entry.who), entry.what]
    words += [shown(each) for each in (entry.about, entry.detail) if each]
    return "  ".join([*words, *([f"refused: {shown(entry.refused)}"] if entry.refused else [])])

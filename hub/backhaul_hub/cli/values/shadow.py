"""`backhaul-hub shadow VID`, `shadow set VID PATH=VALUE ...`, `shadow watch VID`: Show the desired and the reported values of a device; desire something."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import click
from nats.errors import Error as NatsError

from backhaul_codec import CodecError, Value
from backhaul_codec.state.json_values import parse_assignment, parse_path
from backhaul_codec.state.merge import HeadKey
from backhaul_codec.state.point_text import columns, shown
from backhaul_codec.state.point_text import value as value_text
from backhaul_hub.cli._ask import Operator, Visitor
from backhaul_hub.cli._asked_shadows import AskedShadows
from backhaul_hub.cli._group import DefaultGroup
from backhaul_hub.cli._options import access_option, awaited, json_option, who_option
from backhaul_hub.cli._printing import print_json
from backhaul_hub.config import load
from backhaul_hub.errors import HubError, WriteRefusedError
from backhaul_hub.shadow.bucket import Revision, ShadowBucket
from backhaul_hub.shadow.document import (
    DESIRED,
    META,
    PARTS,
    field_key,
    field_name,
    parse_key,
)


@click.group(cls=DefaultGroup, default="show")
def shadow() -> None:
    """Show the desired and the reported values of a device, desire something, or watch.

    `shadow VID` shows; see `shadow show --help`. VID may be a key too, with dots or slashes:
    fleet/prod/veh/VID-001/desired.
    """


@shadow.command()
@click.argument("target", metavar="VID|KEY")
@access_option
@click.option("--history", is_flag=True, help="Show the revisions that the bucket still has.")
@json_option
@awaited
async def show(target: str, access: Operator | Visitor, history: bool, as_json: bool) -> None:
    """Show the fields of device VID: desired, merged (config), reported; or one document as it is."""
    device, part = parse_key(target, _env(access))
    parts = [part] if part else list(PARTS)
    async with _bucket(access) as bucket:
        revisions = {name: await bucket.history(device, name) for name in parts}
    if as_json:
        print_json(_as_json(device, revisions, history=history))
    elif history:
        _print_history(revisions)
    elif part:
        newest = revisions[part][-1:]
        if not newest or newest[0].body is None:
            raise HubError(f"{device} has no {part}")
        click.echo(newest[0].body)
    else:
        _print_fields(device, {name: _document(found) for name, found in revisions.items()})


@shadow.command("set")
@click.argument("target", metavar="VID")
@click.argument("assignments", metavar="[NODE.TYPE[.KEY][:DTYPE]=VALUE]...", nargs=-1)
@access_option
@click.option(
    "--delete",
    "deletions",
    metavar="PATH",
    multiple=True,
    help="Desire that this point be deleted.",
)
@click.option(
    "--forget", "forgotten", metavar="PATH", multiple=True, help="Desire nothing of this point."
)
@click.option("--only", is_flag=True, help="Desire nothing else than what is said here.")
@who_option
@json_option
@awaited
async def set_(
    target: str,
    assignments: tuple[str, ...],
    access: Operator | Visitor,
    deletions: tuple[str, ...],
    forgotten: tuple[str, ...],
    only: bool,
    who: str,
    as_json: bool,
) -> None:
    """Change the desired values of device VID: field by field, the others stay desired.

    A VALUE is read as by `backhaul-hub set`. What was desired already is not written again: where
    the vehicle has overridden a wish, `backhaul-hub set` writes it once more.
    """
    device, part = parse_key(target, _env(access))
    if part not in (None, DESIRED):
        raise WriteRefusedError(f"{part} is written by the control plane alone")
    changed = _changes(assignments, deletions)
    dropped = {_key(path) for path in forgotten}
    if not (changed or dropped or only):
        raise click.UsageError("nothing to change: NODE.TYPE=VALUE, --delete or --forget")
    if twice := changed.keys() & dropped:
        raise click.UsageError(f"{field_name(min(twice))} is both desired and forgotten")
    async with _bucket(access) as bucket:
        revision, taken = await bucket.change(device, changed, dropped, only=only, who=who)
    if as_json:
        click.echo(json.dumps({"device": device, "revision": revision, "taken": taken}))
    elif taken:
        click.echo(f"revision {revision} is taken in")
    else:
        click.echo(f"stored as revision {revision}; no control plane has taken it in yet", err=True)


@shadow.command()
@click.argument("target", metavar="VID")
@access_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, for programs.")
def watch(target: str, access: Operator | Visitor, as_json: bool) -> None:
    """Show the documents of device VID, then every change as it comes, until interrupted."""
    device, part = parse_key(target, _env(access))
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_watch(access, device, part or "*", as_json=as_json))


def _env(access: Operator | Visitor) -> str:
    """Return the environment of the hub's subjects; "" where it is not known: any."""
    return "" if isinstance(access, Visitor) else load(access.directory).twin.env


@contextlib.asynccontextmanager
async def _bucket(access: Operator | Visitor) -> AsyncIterator[ShadowBucket | AskedShadows]:
    async with access.client() as client:
        if isinstance(access, Visitor):
            yield AskedShadows(access, client)
            return
        try:
            yield await ShadowBucket.open(client, _env(access))
        except NatsError as error:
            raise HubError(
                f"the bucket of shadows cannot be used: {error!r}",
                hint=f"start the control plane with: backhaul-hub up --dir {access.directory}",
            ) from error


async def _watch(access: Operator | Visitor, device: str, part: str, *, as_json: bool) -> None:
    known: dict[str, dict[str, Any]] = {}
    async with _bucket(access) as bucket:
        async for name, revision in bucket.watch(device, part):
            if as_json:
                click.echo(json.dumps({"document": name, **_revision_json(revision)}))
                continue
            fields = _fields(name, revision.document)
            before = known.get(name, {})
            known[name] = fields
            for field in sorted(before | fields):
                if field not in fields:
                    click.echo(f"{revision.time}  {name}  {field}  (gone)")
                elif fields[field] != before.get(field, ...):
                    click.echo(f"{revision.time}  {name}  {field}  {_text(fields[field])}")


def _changes(
    assignments: tuple[str, ...], deletions: tuple[str, ...]
) -> dict[HeadKey, Value | None]:
    found: dict[HeadKey, Value | None] = {}
    try:
        for text in assignments:
            said = parse_assignment(text)
            found[HeadKey("", said.node, said.type, said.key)] = said.value
    except CodecError as error:
        raise WriteRefusedError(error.reason) from error
    return found | {_key(path): None for path in deletions}


def _key(path: str) -> HeadKey:
    try:
        return HeadKey("", *parse_path(path))
    except CodecError as error:
        raise WriteRefusedError(error.reason) from error


def _fields(part: str, document: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of a document that are worth a line each: its fields; of meta the differences."""
    if part == META:
        why = {
            name: f"{each['why']} {each.get('by', '')}"
            for name, each in document.get("delta", {}).items()
        }
        refused = document.get("refused")
        return why | ({"refused": refused["reason"]} if refused else {})
    if part != DESIRED:
        fields: dict[str, Any] = document.get("fields", {})
        return fields
    try:
        return {field_name(field_key(name)): said for name, said in document.items()}
    except WriteRefusedError:
        return document


def _document(revisions: list[Revision]) -> dict[str, Any]:
    return revisions[-1].document if revisions else {}


def _text(said: Any) -> str:
    return value_text({"value": said, "tombstone": 0})


def _revision_json(revision: Revision) -> dict[str, Any]:
    return {"revision": revision.number, "time": revision.time, "said": revision.document}


def _as_json(device: str, revisions: dict[str, list[Revision]], *, history: bool) -> dict[str, Any]:
    return {"device": device} | {
        part: [_revision_json(each) for each in found] if history else _document(found)
        for part, found in revisions.items()
    }


def _print_history(revisions: dict[str, list[Revision]]) -> None:
    for part, found in revisions.items():
        for each in found:
            text = "(deleted)" if each.body is None else shown(each.body)
            click.echo(f"{each.time}  {part}  {each.number}  {text}")


def _print_fields(device: str, documents: dict[str, dict[str, Any]]) -> None:
    held = [_fields(part, documents[part]) for part in PARTS[:3]]
    if not any(held) and not documents[META]:
        click.echo(f"{device} has no shadow", err=True)
        return
    delta, meta = documents[META].get("delta", {}), documents[META]
    rows: list[tuple[str, ...]] = [("FIELD", "DESIRED", "CONFIG", "REPORTED", "")]
    for field in sorted(set().union(*held)):
        cells = [_text(column[field]) if field in column else "" for column in held]
        each = delta.get(field)
        why = (
            f"{each['why']} by {each['by']} at {each['at']}"
            if each and "by" in each
            else (each or {}).get("why", "")
        )
        rows.append((field, *cells, why))
    click.echo("\n".join(columns(rows)))
    if refused := meta.get("refused"):
        reason = shown(refused["reason"])
        click.echo(f"revision {refused['revision']} of desired was refused: {reason}", err=True)
    for conflict in meta.get("conflicts", ()):
        click.echo(
            f"conflict {conflict['id']}: {conflict['field']} (backhaul-hub conflicts {device})",
            err=True,
        )

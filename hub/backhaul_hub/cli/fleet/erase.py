"""`backhaul-hub erase VID`: Erase all that the hub keeps of device VID, or the name of a person."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import click

from backhaul_hub.cli._act import act, done
from backhaul_hub.cli._options import directory_option, json_option
from backhaul_hub.cli._printing import log_to_stderr
from backhaul_hub.errors import HubError

_WAIT_S = 3600.0
_LOOK_S = 0.5


@click.command()
@click.argument("device", metavar="[VID]", required=False)
@click.option("--person", metavar="NAME", help="A person, in place of a device.")
@click.option("--yes", is_flag=True, help="Erase. Without it only what that would take is printed.")
@click.option(
    "--tables-done",
    is_flag=True,
    help="The tables hold nothing of it: there are none, or backhaul-spark maintain --erase has run.",
)
@json_option
@directory_option
def erase(
    device: str | None,
    person: str | None,
    yes: bool,
    tables_done: bool,
    as_json: bool,
    directory: Path,
) -> None:
    """Erase all that the hub keeps of device VID, for ever, or the name of a person.

    Prints the places and what is in them. With --yes the device is shut out, the control plane starts
    again and erases; its id is never a device's again. Of a person rights and name go: a pseudonym stands in its place.
    """
    log_to_stderr()
    if bool(device) == bool(person) or (tables_done and not device):
        raise click.UsageError("say a device, or --person")
    if tables_done:
        act(directory, "tables-erased", {"device": device})
        click.echo(f"{device}: the tables hold nothing of it")
        return
    question = {"device": device or "", "person": person or ""}
    answer = (
        act(directory, "erase", question)
        if yes
        else {"plan": act(directory, "erase-plan", question, reads=True)}
    )
    problem = answer.pop("problem", "")
    restarts = bool(answer.pop("restarts", False))
    row = asyncio.run(_carried_out(directory, device, restarts)) if yes and device else None
    if as_json:
        click.echo(json.dumps(answer | {"erasure": row}))
    else:
        _print(answer, row, yes=yes)
    if problem:
        raise HubError(
            f"not every server was told who is shut out: {problem}",
            hint="the control plane tells them, once they are there",
        )


async def _carried_out(directory: Path, device: str, restarts: bool) -> dict[str, Any]:
    """Return the row of an erasure: once it is done, where a control plane begins anew for it. Raises: HubError."""
    until_s = asyncio.get_running_loop().time() + _WAIT_S
    while True:
        try:
            answer = await done(directory, "erasures", {}, reads=True)
        except HubError:  # it begins anew, and erases
            if asyncio.get_running_loop().time() > until_s:
                raise
        else:
            rows: dict[str, dict[str, Any]] = {each["device"]: each for each in answer["erasures"]}
            if not restarts or rows[device]["state"] == "done":
                return rows[device]
        await asyncio.sleep(_LOOK_S)


def _print(answer: dict[str, Any], row: dict[str, Any] | None, *, yes: bool) -> None:
    plan = answer["plan"]
    for table, rows in plan["rows"].items():
        click.echo(f"hub.db, {table}: {rows:,} rows")
    for stream, messages in plan.get("streams", {}).items():
        click.echo(f"{stream}: {messages:,} messages")
    for file in plan.get("files", ()):
        click.echo(f"file {file['name']}: {file['bytes']:,} bytes")
    for path in plan.get("backups", ()):
        click.echo(f"backup {path}: goes with the next backhaul-hub backup --keep")
    if not yes:
        click.echo("Nothing was erased. To erase all of that, for ever: again with --yes")
    elif row is None:
        click.echo(f"In the place of the name stands {answer['pseudonym']}.")
    else:
        done_ = row["state"] == "done"
        click.echo("It is erased here." if done_ else "It is erased as the control plane starts.")
        for what in row["waits"]:
            click.echo(f"Not yet: {what}")

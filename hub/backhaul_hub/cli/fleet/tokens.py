"""`backhaul-hub tokens [VID]`: List enrolment tokens that can still be used."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import click

from backhaul_codec.state.point_text import columns, utc
from backhaul_hub.cli._options import directory_option, json_option
from backhaul_hub.db.store import Registry
from backhaul_hub.enrol import rows as enrolment_rows
from backhaul_hub.enrol.rules import Enrolment
from backhaul_runtime.clock import SystemClock


@click.command()
@click.argument("device", metavar="[VID]", required=False)
@directory_option
@click.option(
    "--all", "every", is_flag=True, help="Used, expired and void ones of 90 days as well."
)
@json_option
def tokens(device: str | None, directory: Path, every: bool, as_json: bool) -> None:
    """List enrolment tokens that can still be used, of all devices or of VID.

    A token itself is shown when it is made and never again: the hub does not keep it. Neither
    server nor control plane has to run. One that should not be used is void after
    `backhaul-hub enrol VID`, which makes another, or `backhaul-hub revoke VID`.
    """
    now_ns = SystemClock().now_ns()
    found = [
        described(each, now_ns)
        for each in asyncio.run(_known(directory))
        if device in (None, each.device) and (every or each.state(now_ns) == "open")
    ]
    if as_json:
        click.echo(json.dumps(found, indent=2))
    elif found:
        headings = tuple(name.upper() for name in found[0])
        click.echo("\n".join(columns([headings, *(each.values() for each in found)])))
    else:
        click.echo("no tokens" if every else "no open tokens", err=True)


def described(token: Enrolment, now_ns: int) -> dict[str, Any]:
    """Return the public facts of a token: none that lets anybody in, or is in a subject."""
    ended_ns = token.voided_ns or token.used_ns
    return {
        "device": token.device,
        "id": token.id,
        "state": token.state(now_ns),
        "made": utc(token.made_ns),
        "expires": utc(token.expires_ns),
        "ended": utc(ended_ns) if ended_ns else "",
        "why": token.why_voided,
    }


async def _known(directory: Path) -> list[Enrolment]:
    async with await Registry.open_existing(directory / "hub.db") as registry:
        return await enrolment_rows.every(registry)

"""`backhaul-hub enrol VID`: Print a token with which a vehicle becomes device VID, once."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import click

from backhaul_codec.protocol.identity import LinkMode
from backhaul_hub.cli._act import act
from backhaul_hub.cli._options import directory_option, seconds_option, vehicle_options
from backhaul_hub.cli._printing import log_to_stderr
from backhaul_hub.enrol.tokens import EXPIRES_S_MAX


@click.command()
@click.argument("device", metavar="VID")
@directory_option
@click.option(
    "--expires",
    "expires_s",
    default="24h",
    show_default=True,
    callback=seconds_option(EXPIRES_S_MAX),
    help="For how long the token may be used: 30m, 24h, 7d.",
)
@vehicle_options
@click.option("--json", "as_json", is_flag=True, help="Token, its id and its end, for programs.")
def enrol(
    device: str,
    directory: Path,
    expires_s: float,
    link_kbit_s: float,
    link_mode: LinkMode,
    per_node: bool | None,
    nodes: tuple[str, ...],
    as_json: bool,
) -> None:
    """Print a token with which a vehicle becomes device VID, once.

    On the vehicle: backhaul-agent enrol TOKEN. It makes its key itself, and nobody else ever has it.
    A token that was made before for VID, and not used, is void. Neither server nor control plane has
    to run for this; both do when the vehicle asks.
    """
    if bool(nodes) != bool(per_node):
        raise click.UsageError("--per-node and --node NAME go together")
    log_to_stderr()
    question = {"device": device, "expires_s": expires_s, "nodes": nodes}
    link = {"link_kbit_s": link_kbit_s, "link_mode": link_mode}
    made = act(directory, "enrol", question | link)
    until = datetime.fromtimestamp(made.pop("expires_ns") // 10**9, UTC).isoformat()
    if as_json:
        click.echo(json.dumps(made | {"expires": until}))
        return
    click.echo(made["token"])
    click.echo(
        f"{device} may be enrolled with this token once, until {until}. On the vehicle:\n"
        "  backhaul-agent enrol TOKEN        or, so that no list of processes shows it, from a file:\n"
        "  backhaul-agent enrol --token-file FILE",
        err=True,
    )

"""`backhaul-hub enrol VID`: Print a token with which a vehicle becomes device VID, once."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path

import click
import structlog

from backhaul_codec.protocol.identity import LinkMode
from backhaul_hub.cli._logs import log_to_stderr
from backhaul_hub.cli._options import directory_option, seconds_option, vehicle_options
from backhaul_hub.config import load
from backhaul_hub.enrol.add_device import DeviceSettings
from backhaul_hub.enrol.tokens import EXPIRES_S_MAX, MadeToken, make_token
from backhaul_runtime.clock import SystemClock

log = structlog.get_logger(__name__)


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
    settings = DeviceSettings(link_kbit_s=link_kbit_s, link_mode=link_mode, nodes=nodes)
    config = load(directory)
    made = asyncio.run(make_token(directory, config, SystemClock(), device, settings, expires_s))
    log.info("token_made", device=device, token=made.enrolment.id)
    if as_json:
        click.echo(json.dumps(_described(made)))
        return
    click.echo(made.word)
    click.echo(
        f"{device} may be enrolled with this token once, until {_until(made)}. On the vehicle:\n"
        "  backhaul-agent enrol TOKEN        or, so that no list of processes shows it, from a file:\n"
        "  backhaul-agent enrol --token-file FILE",
        err=True,
    )


def _described(made: MadeToken) -> dict[str, str]:
    return {
        "device": made.enrolment.device,
        "token": made.word,
        "id": made.enrolment.id,
        "expires": _until(made),
    }


def _until(made: MadeToken) -> str:
    return datetime.fromtimestamp(made.enrolment.expires_ns // 10**9, UTC).isoformat()

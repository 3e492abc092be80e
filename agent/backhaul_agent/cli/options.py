"""Options that several subcommands share: the server to talk to, and the name of a series."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from backhaul_agent.config import NatsConfig
from backhaul_agent.config_file import load
from backhaul_agent.errors import Code, RefusedError
from backhaul_codec.subjects import SubjectError, decode_token

DEFAULT_URL = "nats://127.0.0.1:4222"
DEFAULT_DIR = Path("/etc/backhaul")
DEFAULT_CONFIG = DEFAULT_DIR / "agent.toml"

directory_option = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    default=DEFAULT_DIR,
    show_default=True,
    help="Where this vehicle's files are kept.",
)

config_option = click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    default=DEFAULT_CONFIG,
    show_default=True,
    help="The agent's configuration file.",
)
as_json_option = click.option("--json", "as_json", is_flag=True, help="For programs.")


def server_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add ``--url``, ``--config`` and ``--nkey``; ``login`` has the arguments for `client.connect`."""

    @functools.wraps(function)
    def with_login(*args: Any, url: str, config: Path | None, nkey: str, **fields: Any) -> None:
        function(*args, login=login_of(url, config, nkey), **fields)

    for option in (
        click.option(
            "--nkey",
            envvar="BACKHAUL_NKEY",
            default="",
            help="File with the key to log in with; or in BACKHAUL_NKEY.",
        ),
        click.option(
            "--config",
            type=click.Path(path_type=Path, dir_okay=False),
            help=f"Take server and login from this file.  [default: {DEFAULT_CONFIG}, if readable]",
        ),
        click.option(
            "--url",
            default="",
            help=f"The leaf server.  [default: {DEFAULT_URL}, or as in --config]",
        ),
    ):
        with_login = option(with_login)
    return with_login


def login_of(url: str, config: Path | None, nkey: str) -> dict[str, Any]:
    """Return the arguments for `client.connect`; ``--url`` and ``--nkey`` win over the file's.

    Where nothing is said, it is the agent's own login, for whoever may read that.
    """
    if not (url or nkey or config) and os.access(DEFAULT_CONFIG, os.R_OK):
        config = DEFAULT_CONFIG
    nats = load(config).nats if config else NatsConfig(url=DEFAULT_URL)
    login: dict[str, Any] = {"url": url or nats.url}
    if nkey:
        return login | {"nkey": nkey}
    fields = ("user", "password", "credentials", "nkey")
    return login | {field: getattr(nats, field) for field in fields}


def names_of(series: str) -> tuple[str, ...]:
    """Return the names in ``NODE[.TYPE[.KEY]]``, none where it is empty.

    Raises:
        RefusedError: it is no such thing.
    """
    try:
        return tuple(map(decode_token, series.split("."))) if series else ()
    except SubjectError as error:
        raise RefusedError(Code.BAD_SUBJECT, str(error)) from error

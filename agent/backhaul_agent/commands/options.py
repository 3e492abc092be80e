"""What several subcommands share: which server to talk to, and how a series is named."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from backhaul_agent.config import load
from backhaul_agent.errors import Code, RefusedError
from backhaul_codec.subjects import SubjectError, decode_token

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")
DEFAULT_URL = "nats://127.0.0.1:4222"


def server_options(function: F) -> F:
    """Add ``--url`` and ``--config``; see `login_of`."""
    function = click.option(
        "--config",
        "path",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Take server and login from the agent's configuration file.",
    )(function)
    return click.option(
        "--url", default="", help=f"The leaf server.  [default: {DEFAULT_URL}, or as in --config]"
    )(function)


def login_of(url: str, path: Path | None) -> dict[str, Any]:
    """Return the arguments for `client.connect`; ``--url`` wins over the file's."""
    if path is None:
        return {"url": url or DEFAULT_URL}
    nats = load(path).nats
    return {
        "url": url or nats.url,
        "user": nats.user,
        "password": nats.password,
        "credentials": nats.credentials,
    }


def names_of(series: str) -> tuple[str, ...]:
    """Return the names in ``NODE[.TYPE[.KEY]]``, none where it is empty.

    Raises:
        RefusedError: it is no such thing.
    """
    try:
        return tuple(map(decode_token, series.split("."))) if series else ()
    except SubjectError as error:
        raise RefusedError(Code.BAD_SUBJECT, str(error)) from error

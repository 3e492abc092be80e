"""Options that several commands share, and how progress is told."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import click

from backhaul_codec.strict.toml import TomlError, read_toml
from backhaul_spark.errors import OptionError

# As the hub has it where hub.toml does not say.
DEFAULT_ENV = "prod"
_TWIN_LOGIN = "creds/twin.creds"


# Under which the context of a command has the table root.
ROOT = "backhaul.table_root"


def absolute_root(ctx: click.Context, _: click.Parameter, root: str) -> str:
    """Return the root in a form that executors, in other directories, resolve alike."""
    found = root if "://" in root else str(Path(root).absolute())
    ctx.meta[ROOT] = found
    return found


table_root = click.option(
    "--table-root",
    required=True,
    envvar="BACKHAUL_TABLE_ROOT",
    callback=absolute_root,
    help="Directory, or object store URI, that holds the tables.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for a script.")
verbose = click.option("--verbose", is_flag=True, help="Let Spark's own log through.")
fleet_config = click.option(
    "--config",
    type=click.Path(dir_okay=False),
    envvar="BACKHAUL_TWIN_CONFIG",
    help="TOML file whose table [fleet] names the series that say model and firmware.",
)
places_config = click.option(
    "--config",
    type=click.Path(dir_okay=False),
    envvar="BACKHAUL_TWIN_CONFIG",
    help="TOML file whose table [places] says which series are positions, and the limits.",
)
twin_config = click.option(
    "--config",
    type=click.Path(dir_okay=False),
    envvar="BACKHAUL_TWIN_CONFIG",
    help="twin.toml; without it defaults.",
)
quiet = click.option("--quiet", is_flag=True, help="No progress on stderr.")


def max_messages(default: int) -> Callable[..., Any]:
    """Make the option that says how much a batch reads."""
    return click.option(
        "--max-messages",
        type=click.IntRange(min=1),
        default=default,
        show_default=True,
        help="Most messages a batch.",
    )


def hub_options(streams: str) -> Callable[..., Any]:
    """Make the options that say where the hub is; `streams` names the default streams to read."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(
            [
                click.option(
                    "--hub-dir",
                    type=click.Path(file_okay=False),
                    help="Directory that `backhaul-hub init` made: address and login are in it.",
                ),
                click.option(
                    "--servers", help="nats://host:port, several with commas; tls:// for TLS."
                ),
                click.option(
                    "--credentials", help="A .creds file, or TOML with user and password."
                ),
                click.option("--tls-ca", help="File with the certificate authority to trust."),
                click.option(
                    "--streams", default=streams, show_default=True, help="Names or patterns."
                ),
            ]
        ):
            command = option(command)
        return command

    return add


_SERIES = "node.type or node.type.key, such as battery.soc."


def series_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which series, from when to when, and how finely."""
    return _span_options(click.option("--series", required=True, help=_SERIES)(command))


def several_series_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the same options, with one series or several."""
    several = f"{_SERIES} Several times: these series together."
    return _span_options(
        click.option("--series", multiple=True, required=True, help=several)(command)
    )


def _span_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(
        [
            click.option("--device", required=True, help="The device, such as VID-001."),
            click.option("--from", "start", help="ISO 8601 time; without an offset it is UTC."),
            click.option("--to", "end", help="ISO 8601 time, not included."),
            click.option(
                "--resolution",
                type=click.Choice(["auto", "raw", "1m", "1h", "1d"]),
                default="auto",
                show_default=True,
                help="Every point, or sums by minute, hour or day.",
            ),
        ]
    ):
        command = option(command)
    return command


def source_options(
    hub_dir: str | None,
    servers: str | None,
    credentials: str | None,
    tls_ca: str | None,
    streams: str,
) -> dict[str, str]:
    """Return the options of the jetstream source; the login stays in a file that they name."""
    found = {"streams": streams}
    if hub_dir:
        path = Path(hub_dir) / "hub.toml"
        found |= hub_place(path) | {"credentials": str(path.absolute())}
    if servers:
        found["servers"] = servers
    if credentials:
        found["credentials"] = str(Path(credentials).absolute())
    if tls_ca:
        found["tls_ca"] = str(Path(tls_ca).absolute())
    if "servers" not in found:
        raise click.UsageError("say where the hub is: --hub-dir or --servers")
    return found


def twin_login(hub_dir: str) -> str:
    """Return the file with the login that reads UP and DOWN."""
    path = Path(hub_dir) / _TWIN_LOGIN
    if not path.is_file():
        expected = f"{_TWIN_LOGIN} in it, which `backhaul-hub up` makes; or --credentials"
        raise OptionError("--hub-dir", hub_dir, expected)
    return str(path)


def hub_place(path: Path) -> dict[str, str]:
    """Read from a hub.toml where the hub is, and by which authorities it is known."""
    try:
        values = _toml(path)
        url, ca = str(values["nats"]["url"]), str(values["nats"].get("ca", ""))
    except (KeyError, TypeError) as error:
        raise OptionError("--hub-dir", str(path), "a url under [nats]") from error
    return {"servers": url} | ({"tls_ca": str(path.parent.absolute() / ca)} if ca else {})


def hub_env(path: Path) -> str:
    """Read the fleet's name in subjects of twins from a hub.toml ([twin] env)."""
    section = _toml(path).get("twin", {})
    env = section.get("env", DEFAULT_ENV) if isinstance(section, dict) else None
    if not isinstance(env, str):
        raise OptionError("--hub-dir", str(path), "a text env under [twin]")
    return env


def _toml(path: Path) -> dict[str, Any]:
    try:
        return read_toml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(
            "--hub-dir", str(path.parent), f"hub.toml in it ({error.strerror})"
        ) from error
    except (TomlError, UnicodeDecodeError) as error:
        raise OptionError("--hub-dir", str(path), f"TOML: {error}") from error


def parse_day(text: str) -> date:
    """Read a day such as 2026-01-31."""
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise OptionError("--day", text, "a day such as 2026-01-31") from error


def tell(text: str, *, quiet: bool = False) -> None:
    """Say on stderr how far a long work is."""
    if not quiet:
        print(text, file=sys.stderr, flush=True)

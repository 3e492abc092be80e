"""Options that several commands share, and how progress is told."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import date, datetime
from functools import wraps
from pathlib import Path
from typing import Any, Literal, TypeAlias

import click

from backhaul_codec.strict.toml import TomlError, read_toml
from backhaul_spark.errors import OptionError

# As the hub has it where hub.toml does not say.
DEFAULT_ENV = "prod"
TWIN_LOGIN = "creds/twin.creds"
"""The login that reads UP and DOWN, in the hub's directory."""
CREDENTIALS = "A .creds file, or TOML with user and password."
Tell: TypeAlias = Callable[[str], None]

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


def _config(said: str) -> Callable[..., Any]:
    path = click.Path(dir_okay=False)
    return click.option("--config", type=path, envvar="BACKHAUL_TWIN_CONFIG", help=said)


fleet_config = _config(
    "TOML file whose table [fleet] names the series that say model and firmware."
)
places_config = _config(
    "TOML file whose table [places] says which series are positions, and the limits."
)
twin_config = _config("twin.toml; without it defaults.")


def tell(text: str) -> None:
    """Say on stderr how far a long work is."""
    print(text, file=sys.stderr, flush=True)


def _tell_of(ctx: click.Context, _: click.Parameter, quiet: bool) -> Tell:
    return (lambda text: None) if quiet else tell


quiet = click.option(
    "--quiet", "tell", is_flag=True, callback=_tell_of, help="No progress on stderr."
)
"""The command gets `tell`, which prints nothing where this option is given."""


def max_messages(default: int) -> Callable[..., Any]:
    """Make the option that says how much a batch reads."""
    return click.option(
        "--max-messages",
        type=click.IntRange(min=1),
        default=default,
        show_default=True,
        help="Most messages a batch.",
    )


def gathered(name: str, kind: type[Any], *options: Callable[..., Any]) -> Callable[..., Any]:
    """Make a decorator that adds options; the command gets their values as one dataclass `kind` by this name."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def call(**values: Any) -> Any:
            mine = {
                field.name: values.pop(field.name) for field in fields(kind) if field.name in values
            }
            return command(**values, **{name: kind(**mine)})

        for option in reversed(options):
            call = option(call)
        return call

    return add


@dataclass(frozen=True, slots=True)
class HubPlace:
    """Where the hub is, by which login, and which of its streams are read: as a command's options say it."""

    hub_dir: str | None = None
    servers: str | None = None
    credentials: str | None = None
    tls_ca: str | None = None
    streams: str = "UP_*"

    def source(self, login: str = "") -> dict[str, str]:
        """Return the options of the jetstream source; the login stays in a file that they name.

        Args:
            login: the file in the hub's directory that has it; "" for hub.toml.
        """
        credentials = self.credentials or (login and self.hub_dir and self._login(login))
        found = {"streams": self.streams}
        if self.hub_dir:
            path = self._hub_toml
            found |= hub_place(path) | {"credentials": str(path.absolute())}
        if self.servers:
            found["servers"] = self.servers
        if credentials:
            found["credentials"] = str(Path(credentials).absolute())
        if self.tls_ca:
            found["tls_ca"] = str(Path(self.tls_ca).absolute())
        if "servers" not in found:
            raise click.UsageError("say where the hub is: --hub-dir or --servers")
        return found

    def env(self) -> str:
        """Read the fleet's name in subjects of twins from hub.toml ([twin] env)."""
        section = _toml(self._hub_toml).get("twin", {})
        env = section.get("env", DEFAULT_ENV) if isinstance(section, dict) else None
        if not isinstance(env, str):
            raise OptionError("--hub-dir", str(self._hub_toml), "a text env under [twin]")
        return env

    @property
    def _hub_toml(self) -> Path:
        return Path(self.hub_dir or "") / "hub.toml"

    def _login(self, name: str) -> str:
        path = Path(self.hub_dir or "") / name
        if not path.is_file():
            expected = f"{name} in it, which `backhaul-hub up` makes; or --credentials"
            raise OptionError("--hub-dir", self.hub_dir, expected)
        return str(path)


def hub_options(streams: str, credentials: str = CREDENTIALS) -> Callable[..., Any]:
    """Make the options that say where the hub is, which a command gets as `hub`.

    Args:
        streams: the default streams to read; "" for a command that reads none of the operator's choice.
        credentials: the help text.
    """
    names = click.option("--streams", default=streams, show_default=True, help="Names or patterns.")
    return gathered(
        "hub",
        HubPlace,
        click.option(
            "--hub-dir",
            type=click.Path(file_okay=False),
            help="Directory that `backhaul-hub init` made: address and login are in it.",
        ),
        click.option("--servers", help="nats://host:port, several with commas; tls:// for TLS."),
        click.option("--credentials", help=credentials),
        click.option("--tls-ca", help="File with the certificate authority to trust."),
        *([names] if streams else []),
    )


@dataclass(frozen=True, slots=True)
class SeriesSpan:
    """Which device, from when to when, and how finely: as a command's options say it."""

    device: str
    start: str | None
    end: str | None
    resolution: Literal["auto", "raw", "1m", "1h", "1d"]

    @property
    def bounds(self) -> tuple[datetime | None, datetime | None]:
        """The beginning and the end; None for an option that is not given. Raises: OptionError."""
        from backhaul_spark.query.history import parse_time

        return parse_time("--from", self.start), parse_time("--to", self.end)


_SERIES = "node.type or node.type.key, such as battery.soc."
_span = gathered(
    "span",
    SeriesSpan,
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
)


def series_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which series, and its span, which the command gets as `span`."""
    return _span(click.option("--series", required=True, help=_SERIES)(command))  # type: ignore[no-any-return]


def several_series_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the same options, with one series or several."""
    several = f"{_SERIES} Several times: these series together."
    series = click.option("--series", multiple=True, required=True, help=several)
    return _span(series(command))  # type: ignore[no-any-return]


def hub_place(path: Path) -> dict[str, str]:
    """Read from a hub.toml where the hub is, and by which authorities it is known."""
    try:
        values = _toml(path)
        url, ca = str(values["nats"]["url"]), str(values["nats"].get("ca", ""))
    except (KeyError, TypeError) as error:
        raise OptionError("--hub-dir", str(path), "a url under [nats]") from error
    return {"servers": url} | ({"tls_ca": str(path.parent.absolute() / ca)} if ca else {})


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

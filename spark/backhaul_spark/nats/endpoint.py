"""Where the hub is and how to log in: the connection options, checked once.

A password given as an option would stand in Spark's plans and event logs. So the options may
name a credentials file instead. Of a `.creds` file (a JWT and the seed of its key) only the path
travels to the executors: each reads it when it logs in, so a renewed one needs no new job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from backhaul_codec.protocol.credentials import (
    TEXT_BYTES_MAX,
    Credentials,
    CredentialsError,
    parse_credentials,
)
from backhaul_codec.strict.toml import TomlError, read_toml
from backhaul_codec.subjects import DICTIONARY_STREAM, IMPORT_STREAM
from backhaul_runtime.jetstream import API
from backhaul_spark.errors import OptionError

DEFAULT_PORT = 4222
JOBS_API = "jobsapi"
"""What a hub calls it for the users of its accounts JOBS and TWIN, which is where `.creds` files are from."""
DOWN, DOWN_API = "DOWN_00", "downapi"
"""The stream of what goes to vehicles; it stands in another account, and TWIN alone has a name for it."""


IMPORT_API = "importapi"
"""The same of the stream of what was imported, which stands beside DOWN."""
DICTIONARY_API = "dictapi"
"""The same of the stream of vehicles' dictionaries."""
_ELSEWHERE = {DOWN: DOWN_API, IMPORT_STREAM: IMPORT_API, DICTIONARY_STREAM: DICTIONARY_API}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One hub: its servers, tried in order, and one login for all of them."""

    servers: tuple[tuple[str, int], ...]
    user: str = ""
    password: str = ""
    creds: str = ""
    """Path of a `.creds` file; then there is no user and password."""
    tls: bool = False
    tls_ca: str = ""
    api: str = API
    """Prefix of JetStream's API as this login sees it."""

    def __repr__(self) -> str:
        """Leave the password out: this text ends up in logs and plans."""
        return f"Endpoint({self}, user={self.user!r}, creds={self.creds!r}, tls={self.tls})"

    def __str__(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.servers)


def api_of(api: str, stream: str) -> str:
    """Return the prefix of JetStream's API for one stream, where a login's is `api`."""
    return _ELSEWHERE.get(stream, api) if api == JOBS_API else api


def parse_servers(text: str) -> tuple[tuple[tuple[str, int], ...], bool, str, str]:
    """Read ``nats://[user:password@]host[:port],...``; `tls://` asks for TLS.

    Returns:
        The (host, port) pairs, whether TLS is asked for, user and password ("" if none).
    """
    servers: list[tuple[str, int]] = []
    tls, user, password = False, "", ""
    for item in filter(None, (part.strip() for part in text.split(","))):
        url = urlsplit(item if "://" in item else f"nats://{item}")
        try:
            host, port = url.hostname, url.port or DEFAULT_PORT
        except ValueError:
            host, port = None, 0
        if host is None or url.scheme not in ("nats", "tls"):
            raise OptionError("servers", item, "nats://host:port or tls://host:port")
        tls = tls or url.scheme == "tls"
        user, password = (
            user or unquote(url.username or ""),
            password or unquote(url.password or ""),
        )
        servers.append((host, port))
    if not servers:
        raise OptionError("servers", text, "at least one server")
    return tuple(servers), tls, user, password


def local_file(path: str) -> Path:
    """Return where a file that the driver knows as `path` lies on this machine.

    There, or else where Spark has put the files that `spark-submit --files` named.
    """
    here = Path(path)
    if here.exists():
        return here
    from pyspark import SparkFiles

    root = getattr(SparkFiles, "_root_directory", None)  # None in a driver
    shipped = Path(root or ".") / here.name
    return shipped if root and shipped.exists() else here


def read_creds(path: str) -> Credentials:
    """Read a `.creds` file, as `backhaul-hub init` writes it to creds/spark.creds.

    Raises:
        OptionError: it cannot be read, or is none.
    """
    try:
        with local_file(path).open(encoding="ascii") as file:
            return parse_credentials(file.read(TEXT_BYTES_MAX + 1))
    except OSError as error:
        raise OptionError("credentials", path, f"a readable file ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise OptionError("credentials", path, "a .creds file, which is plain text") from error
    except CredentialsError as error:
        raise OptionError("credentials", path, f"a .creds file: {error}") from error


def login_from(path: str) -> dict[str, str]:
    """Return the fields of `Endpoint` that a credentials file gives.

    It is a `.creds` file by that name, or TOML: at its top, or as hub.toml has it under [nats.spark],
    stand `user` and `password`, or `creds`, the path of a `.creds` file beside it. `api` is the prefix
    of JetStream's API.

    Raises:
        OptionError: one of the files cannot be read, or does not hold that.
    """
    if path.endswith(".creds"):
        read_creds(path)
        return {"creds": path, "api": JOBS_API}
    values = _toml(path)
    try:
        if "creds" not in values:
            api = str(values.get("api", API))
            return {"user": str(values["user"]), "password": str(values["password"]), "api": api}
    except KeyError as error:
        raise OptionError("credentials", path, f"a key {error} in the file") from error
    creds = str(Path(path).parent / str(values["creds"]))
    read_creds(creds)
    return {"creds": creds, "api": str(values.get("api", JOBS_API))}


def _toml(path: str) -> dict[str, Any]:
    try:
        values = read_toml(local_file(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError("credentials", path, f"a readable file ({error.strerror})") from error
    except (TomlError, UnicodeDecodeError) as error:
        raise OptionError(
            "credentials", path, f"a .creds file, or TOML with a login: {error}"
        ) from error
    for key in ("nats", "spark"):
        inner = values.get(key)
        values = inner if isinstance(inner, dict) else values
    return values


def endpoint_from(options: Mapping[str, str]) -> Endpoint:
    """Build the endpoint from data source options; later sources of a login win: URL, options, file.

    Args:
        options: keys in lower case, as Spark hands them to Python.

    Raises:
        OptionError: one of them, or the file that `credentials` names, is not as it should be.
    """
    text = options.get("servers") or options.get("url") or ""
    servers, tls, user, password = parse_servers(text)
    login = {"user": options.get("user", user), "password": options.get("password", password)}
    if options.get("credentials"):
        login = login_from(options["credentials"])
    if options.get("api"):
        login["api"] = options["api"]
    return Endpoint(
        servers=servers,
        tls=tls or bool(options.get("tls_ca")),
        tls_ca=options.get("tls_ca", ""),
        **login,
    )

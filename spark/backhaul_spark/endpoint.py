"""Where the hub is and how to log in: the connection options, checked once.

A password given as an option would stand in Spark's plans and event logs. So the options may
name a credentials file instead, and only its path travels to the executors.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from backhaul_spark.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_PORT = 4222


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One hub: its servers, tried in order, and one login for all of them."""

    servers: tuple[tuple[str, int], ...]
    user: str = ""
    password: str = ""
    tls: bool = False
    tls_ca: str = ""
    api: str = "$JS.API"
    """Prefix of JetStream's API as this login sees it."""

    def __repr__(self) -> str:
        """Leave the password out: this text ends up in logs and plans."""
        return f"Endpoint({self}, user={self.user!r}, tls={self.tls})"

    def __str__(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.servers)


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


def read_credentials(path: str) -> tuple[str, str, str]:
    """Read user, password and API prefix from a TOML file: at its top, or as hub.toml has them.

    There they stand under [nats.spark]. Without `api` the prefix is JetStream's own.
    """
    try:
        values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        values = values.get("nats", {}).get("spark", values)
        return str(values["user"]), str(values["password"]), str(values.get("api", "$JS.API"))
    except OSError as error:
        raise OptionError("credentials", path, f"a readable file ({error.strerror})") from error
    except KeyError as error:
        raise OptionError("credentials", path, f"a key {error} in the file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionError("credentials", path, f"TOML with user and password: {error}") from error


def endpoint_from(options: Mapping[str, str]) -> Endpoint:
    """Build the endpoint from data source options; later sources of a login win: URL, options, file.

    Args:
        options: keys in lower case, as Spark hands them to Python.
    """
    text = options.get("servers") or options.get("url") or ""
    servers, tls, user, password = parse_servers(text)
    user, password = options.get("user", user), options.get("password", password)
    api = "$JS.API"
    if options.get("credentials"):
        user, password, api = read_credentials(options["credentials"])
    return Endpoint(
        servers=servers,
        user=user,
        password=password,
        tls=tls or bool(options.get("tls_ca")),
        tls_ca=options.get("tls_ca", ""),
        api=api,
    )

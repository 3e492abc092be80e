"""The hub's servers: one, or a cluster of three or five; where each is, and where its files are."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from backhaul_codec.programs.nats_conf import lines, quoted
from backhaul_hub.errors import ConfigError

CLUSTER_SIZES = (3, 5)
_PLACE = re.compile(
    r"(?P<name>[A-Za-z0-9_-]{1,32})=(?P<host>\[[0-9A-Fa-f:]+\]|[A-Za-z0-9.-]+)"
    r"(?P<ports>(:\d{1,5}){0,3})"
)
_USER = "cluster"


@dataclass(frozen=True, slots=True)
class ServerPlace:
    """One server of a cluster, as the others, the control plane and the vehicles reach it."""

    name: str
    host: str
    client_port: int
    leaf_port: int
    cluster_port: int


def read_places(
    texts: Collection[str], client_port: int, leaf_port: int, cluster_port: int
) -> tuple[ServerPlace, ...]:
    """Read `NAME=HOST[:CLIENT-PORT[:LEAF-PORT[:CLUSTER-PORT]]]` of each server.

    Raises:
        ConfigError: one is written otherwise, two are alike, or they are too few for a majority.
    """
    defaults = (client_port, leaf_port, cluster_port)
    places = []
    for text in texts:
        found = _PLACE.fullmatch(text)
        if found is None:
            raise ConfigError(
                f"{text!r} is no server of a cluster",
                hint="NAME=HOST or NAME=HOST:CLIENT-PORT:LEAF-PORT:CLUSTER-PORT",
            )
        said = [int(port) for port in found["ports"].split(":")[1:]]
        ports = (*said, *defaults[len(said) :])
        if len(set(ports)) < len(ports) or not all(0 < port < 1 << 16 for port in ports):
            raise ConfigError(f"{text}: three different ports from 1 to 65535 are needed: {ports}")
        places.append(ServerPlace(found["name"], found["host"], *ports))
    if len(places) not in CLUSTER_SIZES:
        raise ConfigError(
            f"{len(places)} servers are no cluster", hint="3 (one may fail) or 5 (two may fail)"
        )
    if len({place.name for place in places}) < len(places):
        raise ConfigError("two servers have the same name")
    taken = [(each.host, port) for each in places for port in _ports(each)]
    if len(set(taken)) < len(taken):
        raise ConfigError("two servers have the same host and port")
    return tuple(places)


def _ports(place: ServerPlace) -> tuple[int, int, int]:
    return place.client_port, place.leaf_port, place.cluster_port


def render_cluster(
    own: ServerPlace, places: Collection[ServerPlace], password: str, tls: str = ""
) -> str:
    """Render the part of hub.conf that makes a server one of a cluster.

    ``tls``: the block with which servers speak TLS to one another (tls/conf_text.py).
    """
    routes = (
        quoted(f"nats-route://{_USER}:{password}@{place.host}:{place.cluster_port}")
        for place in places
        if place != own
    )
    return f"""\

# The other servers. Who knows this password belongs to the hub.
cluster {{
  name: hub
  listen: {quoted(f"{own.host}:{own.cluster_port}")}
  authorization {{ user: {_USER}, password: {quoted(password)}, timeout: 5 }}
  # hub.toml and leaf.conf name every server; what one says of the others would only add addresses
  # that may not lead there.
  no_advertise: true
  routes: [
{lines(routes, indent=4)}
  ]
{tls}}}
"""


def server_directory(directory: Path, name: str) -> Path:
    """Return where in a hub directory the files of one server of a cluster are."""
    return directory / "servers" / name


def server_directories(directory: Path) -> list[Path]:
    """Return where the servers' files are: the hub directory itself where there is one server."""
    clustered = sorted(path.parent for path in directory.glob("servers/*/hub.conf"))
    return clustered or [directory]


def urls(text: str) -> list[str]:
    """Return the addresses of hub.toml's `url` or `leaf_url`, which are separated by commas."""
    return [url for part in text.split(",") if (url := part.strip())]


def is_leaf_url(url: str) -> bool:
    """Return whether a vehicle's leaf server could dial the address."""
    parts = urlsplit(url)
    return parts.scheme in ("nats-leaf", "tls", "ws", "wss") and bool(parts.hostname)

"""Making a hub directory: the files behind `init`."""

from __future__ import annotations

import secrets
import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .config import Down, Quarantine
from .errors import ConfigError
from .private_files import password_hash, write_private
from .room import store_bytes_max, twin_bytes_max
from .server_config import JOBS_API, HubServer, fleet_files, render_hub
from .servers import ServerPlace, render_cluster, server_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class HubLayout:
    """What `backhaul-hub init` is told."""

    client_host: str
    host: str
    client_port: int
    leaf_port: int
    leaf_url: str
    shards: int
    watermark_interval_s: float
    up_gib: int = 4
    env: str = "prod"
    servers: tuple[ServerPlace, ...] = ()
    """Of a cluster: `client_host` and the ports above are not used then, and `host` is where leaf
    ports listen; empty: at each server's own address."""

    @property
    def url(self) -> str:
        """Where control plane and jobs reach the servers."""
        places = [(each.host, each.client_port) for each in self.servers]
        places = places or [(self.client_host, self.client_port)]
        return ",".join(f"nats://{host}:{port}" for host, port in places)


def free_bytes(directory: Path) -> int:
    """Return how much more the disk of a directory takes."""
    return shutil.disk_usage(directory).free


def create_hub(
    directory: Path, layout: HubLayout, free: Callable[[Path], int] = free_bytes
) -> None:
    """Write hub.conf, what it includes, and hub.toml into a new hub directory.

    ``free`` says how many bytes more the directory's disk takes.

    Raises:
        ConfigError: there is a hub already, or the directory cannot be written.
    """
    if (directory / "hub.toml").exists():
        raise ConfigError(
            f"{directory} holds a hub already", hint="edit its hub.toml, or choose another place"
        )
    passwords = {user: secrets.token_urlsafe(24) for user in ("control", "spark", "system")}
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        store = store_bytes_max(free(directory))
        server = HubServer(
            client_host=layout.client_host,
            host=layout.host,
            client_port=layout.client_port,
            leaf_port=layout.leaf_port,
            store_dir=str((directory / "jetstream").absolute()),
            control_hash=password_hash(passwords["control"]),
            spark_hash=password_hash(passwords["spark"]),
            system_hash=password_hash(passwords["system"]),
            store_bytes_max=store,
        )
        for target, each in _servers(directory, layout, server):
            target.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_private(target / "hub.conf", render_hub(each))
            for name, text in fleet_files([]).items():
                write_private(target / name, text)
        # Last: a directory with a hub.toml is a whole hub.
        write_private(directory / "hub.toml", _hub_toml(layout, passwords, store))
    except OSError as error:
        raise ConfigError(f"{directory}: {error.strerror}") from error


def _servers(
    directory: Path, layout: HubLayout, single: HubServer
) -> Iterator[tuple[Path, HubServer]]:
    """Return each server with the directory of its files."""
    if not layout.servers:
        yield directory, single
    password = secrets.token_urlsafe(24)
    for place in layout.servers:
        target = server_directory(directory, place.name)
        yield (
            target,
            replace(
                single,
                name=place.name,
                client_host=place.host,
                host=layout.host or place.host,
                client_port=place.client_port,
                leaf_port=place.leaf_port,
                store_dir=str((target / "jetstream").absolute()),
                cluster=render_cluster(place, layout.servers, password),
            ),
        )


def _hub_toml(layout: HubLayout, passwords: dict[str, str], store: int) -> str:
    taken = (layout.up_gib << 30) * layout.shards + Down().bytes_max + Quarantine().bytes_max
    twin = "".join(f"{name} = {size}\n" for name, size in twin_bytes_max(store - taken).items())
    return f"""\
# Control plane of a backhaul hub, written by `backhaul-hub init`. Unknown keys are refused.

[nats]
# Of a cluster all servers, separated by commas.
url = "{layout.url}"
control = {{ user = "control", password = "{passwords["control"]}" }}
spark = {{ user = "spark", password = "{passwords["spark"]}", api = "{JOBS_API}" }}
system = {{ user = "system", password = "{passwords["system"]}" }}

[fleet]
# Where vehicles reach this hub's leaf ports, of a cluster all, separated by commas; goes into the
# leaf.conf of devices added from now on.
leaf_url = "{layout.leaf_url}"
# UP streams. About 500 devices each.
shards = {layout.shards}

[up]
# What Spark has not read by then is lost to it, so be generous. The server sets this much of the
# disk aside for every shard, as it does for all other streams, up to max_file_store in hub.conf.
bytes_max = {layout.up_gib << 30}
age_days_max = 30

[streams]
# More than one needs a cluster of as many servers.
replicas = {len(layout.servers) or 1}

[twin]
# Stands in the twin's subjects, as in fleet.{layout.env}.veh.VID-001.state.battery.soc
env = "{layout.env}"
# How much each of the twin's streams holds at the most.
{twin}
[watermark]
# At most one message a lane in this time, about 140 bytes each on the link.
interval_s = {layout.watermark_interval_s}
"""

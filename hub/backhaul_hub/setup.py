"""Making a hub directory: the files behind `init`."""

from __future__ import annotations

import secrets
import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .accounts import JOBS_API, account_jwts
from .clock import SystemClock
from .config import Down, Quarantine
from .errors import ConfigError
from .keys import HubKeys, operator_seed_file, read_keys, write_keys
from .logins import OWN_USERS, new_login
from .private_files import write_private
from .room import store_bytes_max, twin_bytes_max
from .server_config import HubServer, render_hub
from .servers import ServerPlace, render_cluster, server_directories, server_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from .accounts import AccountName
    from .clock import Clock

_CLOCK = SystemClock()


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
    operator_key: Path | None = None
    """Where the operator's own seed is written: nothing that runs needs it. None: beside the other
    keys."""
    keys_of: Path | None = None
    """Another hub's directory, whose place this one takes: it has the same keys, so that vehicles
    may move."""

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
    directory: Path,
    layout: HubLayout,
    free: Callable[[Path], int] = free_bytes,
    clock: Clock = _CLOCK,
) -> None:
    """Write keys, credentials, hub.conf, accounts and hub.toml into a new hub directory.

    ``free`` says how many bytes more the directory's disk takes; `clock`, when what is signed was.

    Raises:
        ConfigError: there is a hub already, or the directory cannot be written.
    """
    if (directory / "hub.toml").exists():
        raise ConfigError(
            f"{directory} holds a hub already", hint="edit its hub.toml, or choose another place"
        )
    now_s = clock.now_ns() // 1_000_000_000
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        keys = _keys(directory, layout, now_s)
        (directory / "creds").mkdir(exist_ok=True, mode=0o700)
        for user, account in OWN_USERS.items():
            login = new_login(keys, user, account, now_s=now_s)
            write_private(directory / _creds(user), login.text())
        accounts = account_jwts(keys, [], {}, now_s=now_s)
        store = store_bytes_max(free(directory))
        server = HubServer(
            client_host=layout.client_host,
            host=layout.host,
            client_port=layout.client_port,
            leaf_port=layout.leaf_port,
            store_dir=str((directory / "jetstream").absolute()),
            store_bytes_max=store,
            operator_jwt=keys.operator_jwt,
            system_account=keys.account("SYS").public,
            system_jwt=accounts["SYS"],
            resolver_dir=str(_resolver(directory)),
        )
        for target, each in _servers(directory, layout, server):
            target.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_private(target / "hub.conf", render_hub(each))
        write_accounts(directory, keys, accounts)
        # Last: a directory with a hub.toml is a whole hub.
        write_private(directory / "hub.toml", _hub_toml(layout, store))
    except OSError as error:
        raise ConfigError(f"{error.filename or directory}: {error.strerror}") from error


def write_accounts(directory: Path, keys: HubKeys, jwts: Mapping[AccountName, str]) -> None:
    """Write accounts where servers that do not run yet find them. Raises: OSError."""
    for target in map(_resolver, server_directories(directory)):
        target.mkdir(exist_ok=True, mode=0o700)
        for name, jwt in jwts.items():
            write_private(target / f"{keys.account(name).public}.jwt", jwt)


def _keys(directory: Path, layout: HubLayout, now_s: int) -> HubKeys:
    if layout.keys_of is not None:
        keys = read_keys(layout.keys_of)
        write_keys(directory, keys)
        return keys
    keys, operator = HubKeys.new(now_s=now_s)
    write_keys(directory, keys)
    write_private(layout.operator_key or operator_seed_file(directory), operator.seed + "\n")
    return keys


def _resolver(directory: Path) -> Path:
    return (directory / "accounts").absolute()


def _creds(user: str) -> str:
    return f"creds/{user}.creds"


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
                resolver_dir=str(_resolver(target)),
                cluster=render_cluster(place, layout.servers, password),
            ),
        )


def _hub_toml(layout: HubLayout, store: int) -> str:
    taken = (layout.up_gib << 30) * layout.shards + Down().bytes_max + Quarantine().bytes_max
    twin = "".join(f"{name} = {size}\n" for name, size in twin_bytes_max(store - taken).items())
    return f"""\
# Control plane of a backhaul hub, written by `backhaul-hub init`. Unknown keys are refused.

[nats]
# Of a cluster all servers, separated by commas.
url = "{layout.url}"
# Credentials files, relative to this directory.
control = {{ creds = "{_creds("control")}" }}
spark = {{ creds = "{_creds("spark")}", api = "{JOBS_API}" }}
system = {{ creds = "{_creds("system")}" }}

[fleet]
# Where vehicles reach this hub's leaf ports, of a cluster all, separated by commas; goes into what
# devices added from now on are told.
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

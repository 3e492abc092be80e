"""Making a hub directory: the files behind `init`."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from backhaul_codec.programs.nats_conf import quoted
from backhaul_hub.access.account_files import _resolver, write_accounts
from backhaul_hub.access.keys import HubKeys, operator_seed_file, read_keys, write_keys
from backhaul_hub.access.logins import OWN_USERS, add_later_logins, creds_file, new_login
from backhaul_hub.access.rules import JOBS_API, STORING, account_jwts
from backhaul_hub.config import Down, QuarantineSection
from backhaul_hub.errors import ConfigError
from backhaul_hub.page_settings import PageSection, origins
from backhaul_hub.private_files import private_directory, write_private
from backhaul_hub.servers import (
    ServerPlace,
    render_cluster,
    server_directory,
    urls,
)
from backhaul_hub.setup.server_config import HubServer, render_hub
from backhaul_hub.setup.websocket_config import CONF, INCLUDE, WebSocketListener, render_websocket
from backhaul_hub.streams.disk_shares import store_bytes_max, twin_bytes_max
from backhaul_hub.tls.conf_text import tls_block
from backhaul_hub.tls.files import CA, TLS
from backhaul_hub.tls.setup import (
    TlsChoice,
    client_port_has_tls,
    hosts_of,
    is_wildcard,
    write_certificates,
)
from backhaul_runtime.clock import Clock, SystemClock

_CLOCK = SystemClock()


@dataclass(frozen=True, slots=True)
class HubLayout:
    """The options of `backhaul-hub init`."""

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
    tls: TlsChoice | None = None
    """What the servers show where they speak TLS; None: they do not."""
    keys_of: Path | None = None
    """Another hub's directory, whose place this one takes: it has the same keys, so that vehicles
    may move."""
    sync_interval: str = "always"
    """How often the server syncs; all else than always is for hubs that make no promise."""
    page_port: int = 0
    """Where the page for browsers is served, on this machine; 0: nowhere."""
    websocket_port: int = 0
    """Where browsers reach the servers, at the hosts of their client ports; 0: nowhere."""

    @property
    def page(self) -> PageSection:
        """Return [page] of hub.toml."""
        if not (self.page_port and self.websocket_port):
            return PageSection()
        hosts = [each.host for each in self.servers] or [self._dialled_host]
        has_tls = [self.tls is not None and client_port_has_tls(self.tls, host) for host in hosts]
        return PageSection(
            listen=f"127.0.0.1:{self.page_port}",
            websocket=",".join(
                f"{'wss' if tls else 'ws'}://{host}:{port}"
                for host, port, tls in zip(hosts, self.websocket_ports(), has_tls, strict=True)
            ),
        )

    def websocket_ports(self) -> list[int]:
        """Return each server's port for browsers: those on one host have one after the other."""
        hosts = [each.host for each in self.servers] or [self.client_host]
        return [self.websocket_port + hosts[:at].count(host) for at, host in enumerate(hosts)]

    @property
    def url(self) -> str:
        """Where control plane and jobs reach the servers."""
        places = [(each.host, each.client_port) for each in self.servers]
        places = places or [(self._dialled_host, self.client_port)]
        return ",".join(f"{_scheme(self.tls, host)}://{host}:{port}" for host, port in places)

    @property
    def _dialled_host(self) -> str:
        """Return by which host control plane and jobs reach the client port of the one server."""
        if self.tls is None or not is_wildcard(self.client_host):
            return self.client_host
        return "localhost" if self.tls.own is None else hosts_of(urls(self.leaf_url))[0]

    def dialled(self, place: ServerPlace | None = None) -> list[str]:
        """Return by which hosts vehicles, clients and other servers dial a server."""
        own = [self._dialled_host, self.host] if place is None else [place.host]
        return [*own, *hosts_of(urls(self.leaf_url))]


def free_bytes(directory: Path) -> int:
    """Return how much more the disk of a directory takes."""
    return shutil.disk_usage(directory).free


def create_hub(
    directory: Path,
    layout: HubLayout,
    free: Callable[[Path], int] = free_bytes,
    clock: Clock = _CLOCK,
    settings: str = "",
) -> None:
    """Write keys, credentials, hub.conf, accounts and hub.toml into a new hub directory.

    ``free`` says how many bytes more the directory's disk takes; `clock`, when what is signed was; `settings` is
    the text of hub.toml, if it is not to be made of the layout.

    Raises:
        ConfigError: there is a hub already, or the directory cannot be written.
    """
    if (directory / "hub.toml").exists():
        raise ConfigError(
            f"{directory} holds a hub already", hint="edit its hub.toml, or choose another place"
        )
    now_s = clock.now_ns() // 1_000_000_000
    try:
        private_directory(directory)
        keys = _keys(directory, layout, now_s)
        (directory / "creds").mkdir(exist_ok=True, mode=0o700)
        for user, account in OWN_USERS.items():
            login = new_login(keys, user, account, now_s=now_s)
            write_private(directory / creds_file(user), login.text())
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
            log_file=str(_log(directory)),
            sync_interval=layout.sync_interval,
            websocket=f"\n# Browsers.\n{INCLUDE}\n" if layout.page.listen else "",
        )
        add_later_logins(directory, keys, now_s=now_s)
        ports = layout.websocket_ports()
        for (target, each), port in zip(_servers(directory, layout, server), ports, strict=True):
            private_directory(target)
            if layout.page.listen:
                write_private(target / CONF, render_websocket(_listener(layout, each, port)))
            write_private(target / "hub.conf", render_hub(each))
            _make_stores(Path(each.store_dir), keys)
        if layout.tls is not None:
            names = _dialled(directory, layout)
            vehicles = hosts_of(urls(layout.leaf_url))
            write_certificates(directory, layout.tls, names, vehicles, clock, layout.keys_of)
        write_accounts(directory, keys, accounts)
        # Last: a directory with a hub.toml is a whole hub.
        write_private(directory / "hub.toml", settings or _hub_toml(layout, store))
    except OSError as error:
        raise ConfigError(f"{error.filename or directory}: {error.strerror}") from error


def _make_stores(store: Path, keys: HubKeys) -> None:
    """Make the directories of a server's streams.

    A server that finds none when it loads an account makes it, to see that it can, and removes it
    again. A stream that was made in between, over another connection, has lost its files then.
    """
    for name in STORING:
        place = store / "jetstream" / keys.account(name).public / "streams"
        private_directory(place)


def _keys(directory: Path, layout: HubLayout, now_s: int) -> HubKeys:
    if layout.keys_of is not None:
        keys = read_keys(layout.keys_of)
        write_keys(directory, keys)
        return keys
    keys, operator = HubKeys.new(now_s=now_s)
    write_keys(directory, keys)
    write_private(layout.operator_key or operator_seed_file(directory), operator.seed + "\n")
    return keys


def _log(directory: Path) -> Path:
    return (directory / "hub.log").absolute()


def _servers(
    directory: Path, layout: HubLayout, single: HubServer
) -> Iterator[tuple[Path, HubServer]]:
    """Return each server with the directory of its files."""
    if not layout.servers:
        yield directory, _with_tls(single, layout.tls, directory)
    password = secrets.token_urlsafe(24)
    for place in layout.servers:
        target = server_directory(directory, place.name)
        route_tls = "" if layout.tls is None else tls_block(target, peers=True)
        each = replace(
            single,
            name=place.name,
            client_host=place.host,
            host=layout.host or place.host,
            client_port=place.client_port,
            leaf_port=place.leaf_port,
            store_dir=str((target / "jetstream").absolute()),
            resolver_dir=str(_resolver(target)),
            log_file=str(_log(target)),
            cluster=render_cluster(place, layout.servers, password, route_tls),
        )
        yield target, _with_tls(each, layout.tls, target)


def _listener(layout: HubLayout, server: HubServer, port: int) -> WebSocketListener:
    return WebSocketListener(
        *(server.client_host, port),
        origins(layout.page, tls=False),  # on loopback
        server.client_tls,
    )


def _with_tls(server: HubServer, choice: TlsChoice | None, target: Path) -> HubServer:
    if choice is None:
        return server
    tls = tls_block(target)
    client_tls = tls if client_port_has_tls(choice, server.client_host) else ""
    return replace(server, client_tls=client_tls, leaf_tls=tls)


def _scheme(choice: TlsChoice | None, host: str) -> str:
    return "nats" if choice is None or not client_port_has_tls(choice, host) else "tls"


def _dialled(directory: Path, layout: HubLayout) -> dict[Path, list[str]]:
    """Return of each server, by the directory of its files, by which hosts it is dialled."""
    if not layout.servers:
        return {directory: layout.dialled()}
    return {
        server_directory(directory, place.name): layout.dialled(place) for place in layout.servers
    }


def _ca(layout: HubLayout) -> str:
    if layout.tls is None:
        return ""
    return f'# Whom to believe to be the hub.\nca = "{TLS}/{CA}"\n'


def _hub_toml(layout: HubLayout, store: int) -> str:
    taken = (layout.up_gib << 30) * layout.shards + Down().bytes_max + QuarantineSection().bytes_max
    twin = "".join(f"{name} = {size}\n" for name, size in twin_bytes_max(store - taken).items())
    return f"""\
# Control plane of a backhaul hub, written by `backhaul-hub init`. Unknown keys are refused.

[nats]
# Of a cluster all servers, separated by commas.
url = {quoted(layout.url)}
{_ca(layout)}# Credentials files, relative to this directory.
control = {{ creds = "{creds_file("control")}" }}
spark = {{ creds = "{creds_file("spark")}", api = "{JOBS_API}" }}
twin = {{ creds = "{creds_file("twin")}", api = "{JOBS_API}" }}
history = {{ creds = "{creds_file("history")}", api = "{JOBS_API}" }}
system = {{ creds = "{creds_file("system")}" }}

[fleet]
# Where vehicles reach this hub's leaf ports, of a cluster all, separated by commas; goes into what
# devices added from now on are told.
leaf_url = {quoted(layout.leaf_url)}
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

[page]
# Where the fleet's page is served; empty: nowhere. On another address, or behind a proxy, say `url` as well.
listen = {quoted(layout.page.listen)}
# Where browsers reach the server, as websocket.conf says; of a cluster all, separated by commas.
websocket = {quoted(layout.page.websocket)}
"""

"""Making a hub directory, and adding devices to it: the files behind `init` and `add-device`."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import bcrypt

from .config import Down, Quarantine
from .errors import ConfigError, RegistryError
from .registry import Device, Registry, check_device_id
from .room import store_bytes_max, twin_bytes_max
from .server_config import (
    JOBS_API,
    LEAF_SYSTEM_USER,
    LINK_FILE,
    DeviceLogin,
    HubServer,
    LeafServer,
    render_devices,
    render_hub,
    render_leaf,
)
from .streams import DOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .clock import Clock
    from .config import HubConfig

# The passwords are 192 random bits: nobody guesses them, and a slow hash would only make a
# thousand leafs that come back together wait for one another.
_BCRYPT_ROUNDS = 4


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


@dataclass(frozen=True, slots=True)
class DeviceSettings:
    """What `backhaul-hub add-device` is told about a vehicle."""

    client_port: int
    """Where local programs reach the leaf."""
    state_dir: Path
    """Where on the vehicle ledger and streams are kept."""
    link_kbit_s: float = 1000.0
    """What its link carries at its worst."""
    link_mode: str = "always"
    """Whether the link is always up, or "scheduled" or "on-demand"."""


@dataclass(frozen=True, slots=True)
class AddedDevice:
    """What `backhaul-hub add-device` has written."""

    device: Device
    leaf_conf: Path
    agent_toml: Path
    link_conf: Path | None = None
    """Where the link is not always up."""


def free_bytes(directory: Path) -> int:
    """Return how much more the disk of a directory takes."""
    return shutil.disk_usage(directory).free


def create_hub(
    directory: Path, layout: HubLayout, free: Callable[[Path], int] = free_bytes
) -> None:
    """Write hub.conf, devices.conf and hub.toml into a new hub directory.

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
            control_hash=_hash(passwords["control"]),
            spark_hash=_hash(passwords["spark"]),
            system_hash=_hash(passwords["system"]),
            store_bytes_max=store,
        )
        write_private(directory / "hub.conf", render_hub(server))
        write_private(directory / "devices.conf", render_devices([]))
        # Last: a directory with a hub.toml is a whole hub.
        write_private(directory / "hub.toml", _hub_toml(layout, passwords, store))
    except OSError as error:
        raise ConfigError(f"{directory}: {error.strerror}") from error


async def create_device(
    directory: Path,
    config: HubConfig,
    clock: Clock,
    device_id: str,
    settings: DeviceSettings,
) -> AddedDevice:
    """Enrol a device: into hub.db and devices.conf, and its leaf.conf and agent.toml.

    The server learns of it by a reload, which is the caller's to ask for.

    Raises:
        RegistryError: the id is none, or taken.
        ConfigError: fleet.leaf_url is no address that a leaf could dial, or a file could not be
            written; the device was not added.
    """
    check_device_id(device_id)
    password = secrets.token_urlsafe(24)
    device = Device(device_id, secrets.token_hex(12), _hash(password), clock.now_ns())
    leaf = LeafServer(
        device=device_id,
        token=device.token,
        remote_url=_with_login(config.fleet.leaf_url, device_id, password),
        client_port=settings.client_port,
        store_dir=str(settings.state_dir / "backhaul-leaf"),
        system_password="" if settings.link_mode == "always" else secrets.token_urlsafe(24),
    )
    target = directory / "devices" / device_id
    try:
        with _alone_in(directory):
            async with await Registry.open(directory / "hub.db") as registry:
                if device_id in await registry.devices():
                    raise RegistryError(f"device {device_id} exists already")
                # What the device needs first, its row last: an attempt that failed halfway can
                # simply be made again.
                target.mkdir(parents=True, exist_ok=True, mode=0o700)
                write_private(target / "leaf.conf", render_leaf(leaf))
                write_private(
                    target / "agent.toml", _agent_toml(device, settings, leaf.system_password)
                )
                if leaf.system_password:
                    write_private(target / LINK_FILE, "disabled: true\n")
                known = [*(await registry.devices()).values(), device]
                logins = [DeviceLogin(it.id, it.token, it.password_hash) for it in known]
                write_private(directory / "devices.conf", render_devices(logins))
                await registry.add_device(device)
    except OSError as error:
        raise ConfigError(f"{error.filename or directory}: {error.strerror}") from error
    link_conf = target / LINK_FILE if leaf.system_password else None
    return AddedDevice(device, target / "leaf.conf", target / "agent.toml", link_conf)


@contextlib.contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """Hold the hub directory's lock: devices are added one at a time."""
    with (directory / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner reads, whole or not at all."""
    partial = path.with_name(path.name + ".new")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    partial.replace(path)


def _hash(password: str) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(_BCRYPT_ROUNDS, b"2a")).decode()


def _with_login(url: str, user: str, password: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("nats-leaf", "tls", "ws", "wss") or not parts.hostname:
        raise ConfigError(
            f"fleet.leaf_url {url!r} is no leaf address", hint="nats-leaf://hub.example.org:7422"
        )
    return urlunsplit(parts._replace(netloc=f"{user}:{password}@{parts.netloc}"))


def _hub_toml(layout: HubLayout, passwords: dict[str, str], store: int) -> str:
    taken = (layout.up_gib << 30) * layout.shards + Down().bytes_max + Quarantine().bytes_max
    twin = "".join(f"{name} = {size}\n" for name, size in twin_bytes_max(store - taken).items())
    return f"""\
# Control plane of a backhaul hub, written by `backhaul-hub init`. Unknown keys are refused.

[nats]
url = "nats://{layout.client_host}:{layout.client_port}"
control = {{ user = "control", password = "{passwords["control"]}" }}
spark = {{ user = "spark", password = "{passwords["spark"]}", api = "{JOBS_API}" }}
system = {{ user = "system", password = "{passwords["system"]}" }}

[fleet]
# Where vehicles reach this hub's leaf port; goes into the leaf.conf of devices added from now on.
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
replicas = 1

[twin]
# Stands in the twin's subjects, as in fleet.{layout.env}.veh.VID-001.state.battery.soc
env = "{layout.env}"
# How much each of the twin's streams holds at the most.
{twin}
[watermark]
# At most one message a lane in this time, about 140 bytes each on the link.
interval_s = {layout.watermark_interval_s}
"""


def _agent_toml(device: Device, settings: DeviceSettings, system_password: str) -> str:
    metered = ""
    if system_password:
        metered = f"""
# "scheduled": the link is up every schedule_s seconds, and when an event waits; "on-demand": only
# then. "always" needs no change to leaf.conf.
mode = "{settings.link_mode}"
schedule_s = 3600.0
system_user = "{LEAF_SYSTEM_USER}"
system_password = "{system_password}"
"""
    return f"""\
# Agent of {device.id}, written by `backhaul-hub add-device`. Unknown keys are refused.

[device]
id = "{device.id}"
token = "{device.token}"
down_stream = "{DOWN}"

[nats]
url = "nats://127.0.0.1:{settings.client_port}"

[ledger]
path = "{settings.state_dir / "backhaul-agent" / "ledger.db"}"

[link]
# What the link carries at its worst, to begin with; then it is measured. No more than about four
# seconds of it are ever in flight, so that what is urgent does not wait behind a backlog.
rate_kbit_s = {settings.link_kbit_s}
{metered}"""

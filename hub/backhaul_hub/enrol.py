"""Adding devices to a hub, and changing their nodes: the files behind `add-device`."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from backhaul_codec.identity import (
    Identity,
    IdentityError,
    Link,
    decode_identity,
    encode_identity,
)
from backhaul_codec.subjects import node_lane

from .errors import ConfigError, RegistryError
from .keys import read_keys
from .lanes import NODES_MAX, check_nodes
from .logins import vehicle_jwt
from .nkey import new_key
from .private_files import alone_in, write_private
from .registry import Device, Registry, check_device_id
from .servers import urls
from .streams import DOWN
from .tls_files import ca_text

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from backhaul_codec.identity import LinkMode

    from .clock import Clock
    from .config import HubConfig


IDENTITY_FILE = "identity.json"


@dataclass(frozen=True, slots=True)
class DeviceSettings:
    """What `backhaul-hub add-device` is told about a vehicle."""

    link_kbit_s: float = 1000.0
    """What its link carries at its worst."""
    link_mode: LinkMode = "always"
    nodes: tuple[str, ...] = ()
    """Nodes with streams of their own."""


@dataclass(frozen=True, slots=True)
class AddedDevice:
    """What `backhaul-hub add-device` has written."""

    device: Device
    identity: Path


@dataclass(frozen=True, slots=True)
class ChangedNodes:
    """What giving a device's nodes streams of their own, or taking them, has changed."""

    device: Device
    identity: Path
    dropped: tuple[str, ...]
    """Nodes whose lanes are read no more: all of them is here."""


async def create_device(
    directory: Path,
    config: HubConfig,
    clock: Clock,
    device_id: str,
    settings: DeviceSettings,
) -> AddedDevice:
    """Enrol a device: make its key, its row in hub.db, and its identity document.

    It may connect from then on, whether the hub's server and control plane run or not. The control
    plane learns of it by `hub.reload`, which is the caller's to ask for.

    Raises:
        RegistryError: the id is none, or taken.
        ConfigError: fleet.leaf_url is no address that a leaf could dial, a node cannot have streams
            of its own, or a file could not be written; the device was not added.
    """
    check_device_id(device_id)
    nodes = check_nodes(settings.nodes)
    keys = read_keys(directory)
    key = new_key("user")
    now_ns = clock.now_ns()
    device = Device(device_id, secrets.token_hex(12), key.public, now_ns, nodes)
    document = _document(
        Identity(
            device=device_id,
            token=device.token,
            leaf_urls=tuple(map(_leaf_url, urls(config.fleet.leaf_url))),
            ca=ca_text(directory),
            jwt=vehicle_jwt(keys, device, now_s=now_ns // 1_000_000_000),
            seed=key.seed,
            down_stream=DOWN,
            nodes=nodes,
            link=Link(settings.link_mode, settings.link_kbit_s),
        )
    )
    target = directory / "devices" / device_id
    try:
        with alone_in(directory):
            async with await Registry.open(directory / "hub.db") as registry:
                if device_id in await registry.devices():
                    raise RegistryError(f"device {device_id} exists already")
                # What the device needs first, its row last: an attempt that failed halfway can
                # simply be made again.
                target.mkdir(parents=True, exist_ok=True, mode=0o700)
                write_private(target / IDENTITY_FILE, document)
                await registry.add_device(device)
    except OSError as error:
        raise ConfigError(f"{error.filename or directory}: {error.strerror}") from error
    return AddedDevice(device, target / IDENTITY_FILE)


async def is_enrolled(directory: Path, device_id: str) -> bool:
    """Tell whether a hub knows a device. Raises: RegistryError: hub.db is not usable."""
    if not (directory / "hub.db").exists():
        return False
    async with await Registry.open(directory / "hub.db") as registry:
        return device_id in await registry.devices()


async def change_nodes(
    directory: Path, clock: Clock, device_id: str, nodes: Iterable[str]
) -> ChangedNodes:
    """Have exactly these nodes of an enrolled device have streams of their own.

    Key and token stay; the document has a new JWT, with the lanes of these nodes. Account FLEET must
    offer them, which is the caller's to have pushed (`AccountKeeper`). The lane of a node that is named no more goes on being read; it is
    dropped by a later change, once nothing of it is missing.

    Raises:
        RegistryError: there is no such device.
        ConfigError: a node cannot have streams of its own, or a file cannot be read or written.
    """
    named = check_nodes(nodes)
    keys = read_keys(directory)
    path = directory / "devices" / device_id / IDENTITY_FILE
    try:
        with alone_in(directory):
            async with await Registry.open(directory / "hub.db") as registry:
                known = await registry.devices()
                if device_id not in known:
                    raise RegistryError(f"there is no device {device_id}")
                before = known[device_id]
                dropped = await _drained(registry, before)
                leaving = {*before.nodes, *before.leaving} - {*named, *dropped}
                device = replace(before, nodes=named, leaving=tuple(sorted(leaving)))
                if len(leaving) > NODES_MAX:
                    raise ConfigError(
                        f"{len(leaving)} nodes would leave their lanes, {NODES_MAX} may at once",
                        hint="let the vehicle send what it has, then take the next ones",
                    )
                jwt = vehicle_jwt(keys, device, now_s=clock.now_ns() // 1_000_000_000)
                identity = msgspec.structs.replace(
                    _read_document(path), ca=ca_text(directory), nodes=named, jwt=jwt
                )
                write_private(path, _document(identity))
                await registry.set_nodes(device)
    except OSError as error:
        raise ConfigError(f"{error.filename or directory}: {error.strerror}") from error
    gone = tuple(node for node in dropped if node not in named)
    return ChangedNodes(device, path, gone)


async def _drained(registry: Registry, device: Device) -> list[str]:
    """Return the nodes that left their lanes before, and of whose lanes nothing is missing."""
    owing = {key.lane for key, lane in (await registry.lanes(device.id)).items() if not lane.whole}
    return [node for node in device.leaving if node_lane(node) not in owing]


def _document(identity: Identity) -> str:
    try:
        return encode_identity(identity)
    except IdentityError as error:
        raise ConfigError(f"no identity document can be made of it: {error}") from error


def _read_document(path: Path) -> Identity:
    try:
        return decode_identity(path.read_bytes())
    except IdentityError as error:
        raise ConfigError(
            f"{path}: {error}", hint="put it back as add-device wrote it: its login is nowhere else"
        ) from error


def _leaf_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("nats-leaf", "tls", "ws", "wss") or not parts.hostname:
        raise ConfigError(
            f"fleet.leaf_url {url!r} is no leaf address", hint="nats-leaf://hub.example.org:7422"
        )
    return url

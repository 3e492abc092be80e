"""Adding devices to a hub, and changing their nodes: the work behind `add-device`."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from backhaul_codec.device_token import new_device_token
from backhaul_codec.protocol.identity import LinkCapacity, LinkMode
from backhaul_codec.subjects import node_lane
from backhaul_hub.access.identity_documents import Documents
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.devices import add_device, node_changes, read_devices
from backhaul_hub.db.store import Registry
from backhaul_hub.device import Device, check_device_id
from backhaul_hub.errors import ConfigError, RegistryError
from backhaul_hub.lane_names import NODES_MAX, check_nodes
from backhaul_hub.lane_records.lane_rows import read_lanes
from backhaul_hub.nats.nkey import new_key
from backhaul_runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class DeviceSettings:
    """The options of `backhaul-hub add-device` about a vehicle."""

    link_kbit_s: float = 1000.0
    """What its link carries at its worst."""
    link_mode: LinkMode = "always"
    nodes: tuple[str, ...] = ()
    """Nodes with streams of their own."""


@dataclass(frozen=True, slots=True)
class AddedDevice:
    """The result of `backhaul-hub add-device`."""

    device: Device
    identity: Path


@dataclass(frozen=True, slots=True)
class ChangedNodes:
    """The change when a device's nodes get streams of their own, or lose them."""

    device: Device
    identity: Path
    dropped: tuple[str, ...]
    """Nodes whose lanes are read no more: all of them is here."""


async def create_device(
    registry: Registry,
    documents: Documents,
    clock: Clock,
    device_id: str,
    settings: DeviceSettings,
) -> AddedDevice:
    """Enrol a device: make its key, its row in hub.db, and its identity document.

    It may connect from then on, whether the hub's server and control plane run or not. What the
    control plane knows of devices it learns anew, which is the caller's to have done.

    Raises:
        RegistryError: the id is none, or taken.
        ConfigError: fleet.leaf_url is no address that a leaf could dial, a node cannot have streams
            of its own, or a file could not be written; the device was not added.
    """
    check_device_id(device_id)
    nodes = check_nodes(settings.nodes)
    key = new_key("user")
    now_ns = clock.now_ns()
    device = Device(device_id, new_device_token(secrets.choice), key.public, now_ns, nodes)
    link = LinkCapacity(settings.link_mode, settings.link_kbit_s)
    identity = documents.make(device, link, now_s=now_ns // 1_000_000_000, seed=key.seed)

    try:
        # What the device needs first, its row last: an attempt that failed halfway can
        # simply be made again.
        await add_device(registry, device, lambda: documents.write(identity))
    except OSError as error:
        raise ConfigError(f"{error.filename or identity.device}: {error.strerror}") from error
    return AddedDevice(device, documents.path(device_id))


async def change_nodes(
    registry: Registry, documents: Documents, clock: Clock, device_id: str, nodes: Iterable[str]
) -> ChangedNodes:
    """Have exactly these nodes of an enrolled device have streams of their own.

    Key and token stay; the document has a new JWT, with the lanes of these nodes. Account FLEET must
    offer them, which is the caller's to have pushed (`AccountKeeper`). The lane of a node that is
    named no more goes on being read; a later change drops it, once nothing of it is missing.

    Raises:
        RegistryError: there is no such device.
        ConfigError: a node cannot have streams of its own, or a file cannot be read or written.
    """
    named = check_nodes(nodes)
    try:
        # In one transaction: the vehicle may just be getting another key.
        return await registry.write_decided(
            lambda: _changed(registry, documents, device_id, named, clock)
        )
    except OSError as error:
        raise ConfigError(f"{error.filename or device_id}: {error.strerror}") from error


async def _changed(
    registry: Registry, documents: Documents, device_id: str, named: tuple[str, ...], clock: Clock
) -> tuple[Sequence[RowChange], ChangedNodes]:
    """Return the statements that give a device these nodes, and the change; its document is written then."""
    known = await read_devices(registry)
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
    now_s = clock.now_ns() // 1_000_000_000
    path = documents.write(documents.renew(device, now_s=now_s))
    gone = tuple(node for node in dropped if node not in named)
    return node_changes(device), ChangedNodes(device, path, gone)


async def _drained(registry: Registry, device: Device) -> list[str]:
    """Return the nodes that left their lanes before, with nothing missing in those lanes."""
    owing = {
        key.lane for key, lane in (await read_lanes(registry, device.id)).items() if not lane.whole
    }
    return [node for node in device.leaving if node_lane(node) not in owing]

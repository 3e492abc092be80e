"""The rows of devices in hub.db: read, and changed with others in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from backhaul_hub.db.change import RowChange
from backhaul_hub.db.erased import erasure_of
from backhaul_hub.db.store import Registry
from backhaul_hub.device import FLEET, Device, check_device_id
from backhaul_hub.errors import RegistryError


def enrolled(device: Device) -> list[RowChange]:
    """Return the statements that store a device that is not there."""
    row = (device.id, device.token, device.public_key, device.added_ns)
    return [RowChange("INSERT INTO device VALUES (?, ?, ?, ?)", [row]), *node_changes(device)]


def enrolled_anew(device: Device) -> list[RowChange]:
    """Return the statements that give a device that is there another key, token and nodes."""
    row = (device.token, device.public_key, device.id)
    return [
        RowChange("UPDATE device SET token = ?, public_key = ? WHERE id = ?", [row]),
        *node_changes(device),
    ]


def node_changes(device: Device) -> list[RowChange]:
    """Return the statements that store which nodes of a device have streams of their own, or had."""
    named = [(node, False) for node in device.nodes] + [(node, True) for node in device.leaving]
    return [
        RowChange("DELETE FROM device_node WHERE device = ?", [(device.id,)]),
        RowChange(
            "INSERT INTO device_node VALUES (?, ?, ?)",
            [(device.id, node, leaving) for node, leaving in named],
        ),
    ]


async def add_device(
    registry: Registry, device: Device, first: Callable[[], object] = lambda: None
) -> None:
    """Enrol a device.

    Args:
        registry: hub.db.
        device: one that is not there.
        first: makes what the device needs, before its row is stored.

    Raises:
        RegistryError: its id is none, or taken, also by a group.
    """

    async def decided() -> tuple[list[RowChange], None]:
        await require_free(registry, device.id)
        if await known_ids(registry, [device.id]):
            raise RegistryError(f"device {device.id} exists already")
        first()
        return enrolled(device), None

    await registry.write_decided(decided)


async def known_ids(registry: Registry, ids: Sequence[str]) -> set[str]:
    """Return which of some ids are devices'. Raises: RegistryError."""
    query = "SELECT id FROM device WHERE id IN (SELECT value FROM json_each(?))"
    return {id_ for (id_,) in await registry.fetch(query, (msgspec.json.encode(ids).decode(),))}


async def ids_after(registry: Registry, after: str, count: int) -> list[str]:
    """Return the ids of the devices that come after one, in their order, at most `count`. Raises: RegistryError."""
    query = "SELECT id FROM device WHERE id > ? ORDER BY id LIMIT ?"
    return [id_ for (id_,) in await registry.fetch(query, (after, count))]


async def require_free(registry: Registry, device: str) -> None:
    """Refuse an id that is none, a group's, or that of a device that was erased. Raises: RegistryError."""
    check_device_id(device)
    if await erasure_of(registry, device) is not None:
        raise RegistryError(
            f"{device} was erased: nothing comes back under that id", hint="take another id"
        )
    groups = "SELECT 1 FROM head WHERE device = ? AND ? IN (node, parent) AND key = '' LIMIT 1"
    if await registry.fetch(groups, (FLEET, device)):
        raise RegistryError(f"{device} is a group in the hub's tree already")


async def read_nodes(registry: Registry) -> list[str]:
    """Return the names of all nodes with streams of their own, of all devices."""
    return [row[0] for row in await registry.fetch("SELECT DISTINCT node FROM device_node")]


async def read_devices(registry: Registry) -> dict[str, Device]:
    """Return all devices by id, in the order of their ids."""
    nodes: dict[tuple[str, bool], list[str]] = {}
    for device, node, leaving in await registry.fetch(
        "SELECT device, node, leaving FROM device_node ORDER BY node"
    ):
        nodes.setdefault((device, bool(leaving)), []).append(node)
    rows = await registry.fetch(
        "SELECT id, token, device.public_key, added_ns, coalesce(revoked_ns, 0) "
        "FROM device LEFT JOIN revocation ON revocation.public_key = device.public_key "
        "ORDER BY id"
    )
    return {
        id_: Device(
            id_,
            token,
            public_key,
            added_ns,
            nodes=tuple(nodes.get((id_, False), ())),
            leaving=tuple(nodes.get((id_, True), ())),
            revoked_ns=revoked_ns,
        )
        for id_, token, public_key, added_ns, revoked_ns in rows
    }

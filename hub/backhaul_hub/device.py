"""One enrolled vehicle or gateway, as every room of the hub knows it."""

from __future__ import annotations

from dataclasses import dataclass

from backhaul_codec.subjects import DEVICE_ID
from backhaul_hub.errors import RegistryError

FLEET = "fleet"
"""The root above all devices, and the name under which the hub keeps heads of its own."""


@dataclass(frozen=True, slots=True)
class Device:
    """One enrolled vehicle or gateway."""

    id: str
    token: str
    """Part of its consumers' and subjects' names, as `new_device_token` makes one."""
    public_key: str
    """Of the nkey with which it logs in."""
    added_ns: int
    nodes: tuple[str, ...] = ()
    """Nodes with streams of their own, by name, sorted."""
    leaving: tuple[str, ...] = ()
    """Nodes that had some: their lanes are read on until nothing of them is missing."""
    revoked_ns: int = 0
    """When its key was revoked; what came of it before stays. 0: it was not."""


def check_device_id(device: str) -> str:
    """Return the id if it is one.

    Raises:
        RegistryError: it is not.
    """
    if not DEVICE_ID.fullmatch(device):
        raise RegistryError(
            f"{device!r} is no device id",
            hint="letters, digits, _ and -, at most 63, and a letter or digit first: VID-001",
        )
    if device == FLEET:
        raise RegistryError(f"{FLEET} is the root of the hub's tree, no device")
    return device


@dataclass(slots=True)
class DeviceLink:
    """The link of one device, as the hub's server sees it."""

    up: bool = False
    since_ns: int = 0
    """When it came up or went down; ns since the Unix epoch."""
    address: str = ""
    """Where the leaf dials from, as the server sees it; kept while it is down."""
    agent: bool | None = None
    """Whether an agent is connected to the leaf server; None: nobody has said yet."""
    agent_since_ns: int = 0
    """Since when it is so."""
    rtt: str = ""
    answered_ns: int = 0
    """When `rtt` was last seen to change: then at the latest the vehicle has answered a ping."""

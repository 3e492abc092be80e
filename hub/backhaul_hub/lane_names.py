"""The lanes of a device, and the names of their streams and consumers. Pure.

Every device has `live` and `bulk` up and one stream down. A node that the operator has named has a
lane of its own beside them, and a stream of its own down: all that is about it goes there.
"""

from __future__ import annotations

from collections.abc import Iterable

from backhaul_codec.kinds import SHARED_LANES, Lane
from backhaul_codec.subjects import (
    SubjectError,
    node_lane,
    node_lane_subject,
    node_of_lane,
    parse_leaf,
    require_own_lane,
)
from backhaul_hub.device import Device
from backhaul_hub.errors import ConfigError

NODES_MAX = 64
"""Nodes of one device with streams of their own: each costs its link 26 MB a day where it is not pushed."""
# One for the fleet: consumers are cheap (5,000 cost 219 MB), unlike sources, which UP is sharded for.
DOWN = "DOWN_00"
RESETS = f"hubapi.CONSUMER.RESET.{DOWN}.*"
# What DOWN carries for a device as such: points, commands, system messages.
_SHARED_DOWN = ("p", "c", "s")


def check_nodes(nodes: Iterable[str]) -> tuple[str, ...]:
    """Return the nodes as a registry keeps them: each once, sorted.

    Raises:
        ConfigError: a name that streams cannot be named after, or too many.
    """
    found = tuple(sorted(set(nodes)))
    if len(found) > NODES_MAX:
        raise ConfigError(
            f"{len(found)} nodes with streams of their own, {NODES_MAX} may be",
            hint="nodes that are not named share the device's streams",
        )
    for node in found:
        try:
            require_own_lane(node)
        except SubjectError as error:
            raise ConfigError(str(error)) from error
    return found


def node_lanes(device: Device) -> list[Lane]:
    """Return the lanes of a device's own nodes, those that are to go included."""
    return [node_lane(node) for node in (*device.nodes, *device.leaving)]


def lanes_of(device: Device) -> list[Lane]:
    """Return all lanes of a device, its own first."""
    return [*SHARED_LANES, *node_lanes(device)]


def out_stream(lane: Lane) -> str:
    """Return the name of a lane's stream on the leaf."""
    return f"OUT_{lane}"


def deliver_subject(device: str, token: str, lane: Lane) -> str:
    """Return where a lane's durable on the leaf delivers to."""
    return f"dlv.{device}.{token}_{lane}"


def down_durable(device: str, token: str, lane: Lane = "") -> str:
    """Return the durable on DOWN that the leaf's stream of a node's lane, or IN, sources through."""
    return f"{device}-{token}_{lane}" if lane else f"{device}-{token}"


def down_deliver_subject(device: str, token: str, lane: Lane = "") -> str:
    """Return where that durable delivers to."""
    return f"dn.{device}.{token}_{lane}" if lane else f"dn.{device}.{token}"


def down_filters(device: Device, lane: Lane = "") -> list[str]:
    """Return which part of DOWN goes to the stream of a node's lane, or to IN."""
    if lane:
        node = node_of_lane(lane)
        assert node is not None
        return [f"in.{device.id}.{node_lane_subject(node, '>')}"]
    if not node_lanes(device):
        return [f"in.{device.id}.>"]
    # A filter says what is let through, never what is not.
    return [f"in.{device.id}.{letter}.>" for letter in _SHARED_DOWN]


def down_subject(device: Device, leaf_subject: str) -> str:
    """Return the subject in DOWN for points: in their node's own part, where it has one.

    Raises: SubjectError.
    """
    node = parse_leaf(leaf_subject).node
    if node is not None and node in device.nodes:
        leaf_subject = node_lane_subject(node, leaf_subject)
    return f"in.{device.id}.{leaf_subject}"


def nodes_of_lanes(lanes: Iterable[str]) -> set[str]:
    """Return the nodes that have lanes of their own among these; other names are left out."""
    found = set()
    for lane in lanes:
        try:
            found.add(node_of_lane(lane) or "")
        except SubjectError:
            continue
    return found - {""}

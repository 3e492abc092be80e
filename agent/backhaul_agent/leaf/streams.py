"""The streams and consumers the agent keeps on the leaf server, as the server's API wants them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from backhaul_agent.leaf.link_window import LinkWindow
from backhaul_codec.kinds import SHARED_LANES, Lane, stored_subjects
from backhaul_codec.subjects import node_lane_subject, node_of_lane

if TYPE_CHECKING:
    from backhaul_agent.config import Config

IN_STREAM = "IN"
IN_NEWS = "agent.in"  # where IN says what it has stored: agent.in.<its subject>, headers only
SOURCED_ONLY = (
    "agent.sourced-only"  # a stream without a source needs a subject; on these nobody publishes
)
HUB_API = "hubapi"
SECOND_NS = 1_000_000_000
# Not 1: a consumer at 0 that is reset while nats-server 2.15.1 writes its state file answers with
# the state in that file, and the hub's source passes over what the file calls delivered (ADR 1).
OUT_FIRST_SEQ = 2


def link_window(config: Config, lanes: Iterable[Lane] = SHARED_LANES) -> LinkWindow:
    """Return the lanes' windows to begin with."""
    link = config.link
    sizes = {lane: config.message_bytes_typical(lane) for lane in lanes}
    return LinkWindow(link.rate_kbit_s * 1000 / 8, sizes, adaptive=link.adaptive)


def out_stream(lane: str) -> str:
    """Return the name of a lane's stream."""
    return f"OUT_{lane}"


def in_stream(lane: Lane = "") -> str:
    """Return the name of the stream in which the hub's messages come: a node's own, or the device's."""
    return f"{IN_STREAM}_{lane}" if lane else IN_STREAM


def out_subjects(lane: Lane) -> list[str]:
    """Return the subjects that a lane's stream captures."""
    node = node_of_lane(lane)
    return stored_subjects(lane) if node is None else [node_lane_subject(node, ">")]


def out_stream_config(config: Config, lane: str) -> dict[str, Any]:
    """Return a lane's stream: the oldest goes first, and any local program may read it."""
    return {
        "name": out_stream(lane),
        "description": f"backhaul uplink, {lane} lane; written by the agent only",
        "subjects": out_subjects(lane),
        "storage": "file",
        "retention": "limits",
        "discard": "old",
        "max_bytes": config.lane_bytes_max(lane),
        "allow_direct": True,
        "num_replicas": 1,
        "first_seq": OUT_FIRST_SEQ,
    }


def out_consumer_config(
    config: Config, lane: str, lanes: Iterable[Lane] = SHARED_LANES
) -> dict[str, Any]:
    """Return the durable through which the hub sources a lane, one of all these ``lanes``.

    `max_ack_pending` is what keeps a slow link usable for anything else: no more than about four
    seconds of the link are ever in its socket. This is the first one; `uplink.flow_control` keeps it right.
    """
    device = config.device
    return {
        "durable_name": device.token,
        "name": device.token,
        "deliver_subject": f"dlv.{device.id}.{device.token}_{lane}",
        "deliver_policy": "all",
        "replay_policy": "instant",
        "ack_policy": "flow_control",
        "flow_control": True,
        "idle_heartbeat": SECOND_NS,
        "max_ack_pending": link_window(config, lanes).window(lane),
    }


def in_stream_config(config: Config, lane: Lane = "") -> dict[str, Any] | None:
    """Return the stream that sources this device's part of DOWN, or None without a down_stream.

    With a node's ``lane`` it is the node's part; the hub's durable sees to what is in which.
    """
    device = config.device
    if not device.down_stream:
        return None
    token = f"{device.token}_{lane}" if lane else device.token
    return {
        "name": in_stream(lane),
        "description": "what the hub sends this device; sourced, newest of each subject",
        "subjects": [f"{SOURCED_ONLY}.{in_stream(lane)}"],
        "storage": "file",
        "retention": "limits",
        "discard": "old",
        "max_msgs_per_subject": 1,
        "allow_direct": True,
        "num_replicas": 1,
        "republish": {"src": ">", "dest": f"{IN_NEWS}.>", "headers_only": True},
        "sources": [
            {
                "name": device.down_stream,
                "external": {"api": HUB_API, "deliver": ""},
                "consumer": {
                    "name": f"{device.id}-{token}",
                    "deliver_subject": f"dn.{device.id}.{token}",
                },
                "subject_transforms": [{"src": f"in.{device.id}.>", "dest": ">"}],
            }
        ],
    }

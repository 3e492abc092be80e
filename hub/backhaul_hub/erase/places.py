"""The hub's streams that hold something of a device, and under which subjects. Pure."""

from __future__ import annotations

from typing import Literal, NamedTuple

from backhaul_codec.subjects import DICTIONARY_STREAM, IMPORT, IMPORT_STREAM
from backhaul_hub.lane_names import DOWN
from backhaul_hub.shards import PUSH, relay_name, shard_of, up_name
from backhaul_hub.streams.twin_streams import (
    COMMANDS,
    EVENTS,
    SHADOW,
    SHADOW_BUCKET,
    STATE,
    device_prefix,
)

How = Literal["overwrite", "rewrite", "purge"]


class StreamPlace(NamedTuple):
    """One stream, and where in it."""

    stream: str
    subject: str
    how: How
    """`overwrite`: the server overwrites each message in its file. `rewrite`: the stream keeps the newest of a subject, and
    former ones stand in its files; it is put back from a snapshot of itself. `purge`: it stands in memory."""


def stream_places(env: str, shards: int, device: str) -> list[StreamPlace]:
    """Return the places of a device, in the order in which messages pass through them."""
    twin = device_prefix(env, device)
    shard = shard_of(device, shards)
    return [
        StreamPlace(PUSH, f"u.{device}.>", "purge"),
        StreamPlace(relay_name(shard), f"up.{device}.>", "purge"),
        StreamPlace(up_name(shard), f"up.{device}.>", "overwrite"),
        StreamPlace(EVENTS, f"{twin}.>", "overwrite"),
        StreamPlace(COMMANDS, f"{twin}.>", "overwrite"),
        StreamPlace(DOWN, f"in.{device}.>", "rewrite"),
        StreamPlace(IMPORT_STREAM, f"{IMPORT}.{device}.>", "overwrite"),
        StreamPlace(DICTIONARY_STREAM, f"dict.{device}.>", "rewrite"),
        StreamPlace(STATE, f"{twin}.>", "rewrite"),
        StreamPlace(SHADOW, f"$KV.{SHADOW_BUCKET}.{twin}.>", "rewrite"),
    ]

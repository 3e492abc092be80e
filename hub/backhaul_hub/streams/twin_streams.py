"""The twin's five streams, declared: state, events, commands, shadow, blobs. Pure.

Their subjects are `fleet.<env>.veh.<device>.` and one of `state.`, `evt.`, `cmd.`; the shadow's keys
begin alike. The last two are what stock clients know as a key-value bucket and an object store, and
are declared just as such clients would make them. docs/twin.md says how each is read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from backhaul_codec.subjects import DEVICE_ID
from backhaul_hub import shards
from backhaul_hub.config import HubConfig
from backhaul_hub.nats.jetstream import Json

STATE = "TWIN_STATE"
EVENTS = "TWIN_EVENTS"
COMMANDS = "TWIN_CMD"
SHADOW_BUCKET = "TWIN_SHADOW"
SHADOW = f"KV_{SHADOW_BUCKET}"
BLOBS_BUCKET = "TWIN_BLOBS"
BLOBS = f"OBJ_{BLOBS_BUCKET}"

SHADOW_HISTORY = 5
COMMANDS_AGE_S_MAX = 300

_SECOND_NS = 1_000_000_000
_DAY_NS = 86_400 * _SECOND_NS


def device_prefix(env: str, device: str) -> str:
    """Return the beginning of all twin subjects of a device, and of the keys of its shadow."""
    assert DEVICE_ID.match(device), device
    return f"fleet.{env}.veh.{device}"


def twin_streams(config: HubConfig, up_streams: Iterable[str]) -> list[Json]:
    """Declare all five, without the settings common to every stream of the hub (streams/streams.py).

    Args:
        config: hub.toml; its `[twin]` says how much each may hold.
        up_streams: the names of the UP shards, which events are sourced from.
    """
    twin = config.twin
    every_device = f"fleet.{twin.env}.veh.*"
    state: dict[str, Any] = {
        "name": STATE,
        "subjects": [f"{every_device}.state.>"],
        "max_age": twin.state_age_s_max * _SECOND_NS,
        "max_bytes": twin.state_bytes_max,
        "allow_rollup_hdrs": True,
        # A turn's values in one batch, synced once: 32,000 values/s against 9,000 one by one.
        "allow_atomic": True,
    }
    events: dict[str, Any] = {
        "name": EVENTS,
        "max_age": twin.events_age_days_max * _DAY_NS,
        "max_bytes": twin.events_bytes_max,
        # What else stands here a vehicle has said: its kinds of events have one token.
        "subjects": [f"{every_device}.evt.alert.>"],
        "sources": [events_of(name, twin.env) for name in up_streams],
    }
    commands: dict[str, Any] = {
        "name": COMMANDS,
        "subjects": [f"{every_device}.cmd.>"],
        "retention": "workqueue",
        "max_age": COMMANDS_AGE_S_MAX * _SECOND_NS,
        "max_bytes": twin.commands_bytes_max,
        # Who sends one too many hears of it; the oldest would vanish unheard.
        "discard": "new",
    }
    shadow: dict[str, Any] = {
        "name": SHADOW,
        "subjects": [f"$KV.{SHADOW_BUCKET}.>"],
        "max_msgs_per_subject": SHADOW_HISTORY,
        "max_bytes": twin.shadow_bytes_max,
        "discard": "new",
        "allow_rollup_hdrs": True,
        "deny_delete": True,
    }
    blobs: dict[str, Any] = {
        "name": BLOBS,
        "subjects": [f"$O.{BLOBS_BUCKET}.C.>", f"$O.{BLOBS_BUCKET}.M.>"],
        "max_bytes": twin.blobs_bytes_max,
        "discard": "new",
        "allow_rollup_hdrs": True,
    }
    return [state, events, commands, shadow, blobs]


def events_of(up_stream: str, env: str) -> Json:
    """Declare one UP shard as a source of events: programs' reports, none of the housekeeping.

    Never to be changed on a living stream: the server takes a source with another transform for
    a new one, and brings all that UP holds once more.
    """
    return {
        "name": up_stream,
        "external": {"api": shards.API, "deliver": shards.DELIVERIES},
        "subject_transforms": [
            {
                "src": "up.*.e.app.*",
                "dest": f"fleet.{env}.veh.{{{{wildcard(1)}}}}.evt.{{{{wildcard(2)}}}}",
            }
        ],
    }

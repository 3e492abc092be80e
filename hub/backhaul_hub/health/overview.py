"""The hub at one look, for the page's screen System: the answer of `backhaul-hub status`, and its figures. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from backhaul_hub.health.judge import HealthFacts
from backhaul_hub.nats.jetstream import Json

_CONSUMERS_SHOWN = 200


def overview(
    status: Mapping[str, Any],
    facts: HealthFacts,
    lags: Mapping[tuple[str, str], int],
    *,
    version: str,
    since_ns: int,
) -> dict[str, Any]:
    """Return the answer of the service `health`.

    Args:
        status: the answer of `backhaul-hub status --json`.
        facts: the last look.
        lags: of the sources, in messages, by (device, lane), where they are known.
        version: of the control plane.
        since_ns: when it started, since the Unix epoch.
    """
    streams = facts.streams or []
    return {
        **status,
        "control": {"version": version, "since_ns": since_ns},
        "jetstream": facts.streams is not None,
        "streams": [_stream(info) for info in streams],
        "shards": list(_shards(streams, facts)),
        "consumers": [_consumer(info) for info in _worst(facts.consumers)],
        "consumers_not_shown": max(0, len(facts.consumers) - _CONSUMERS_SHOWN),
        "jobs": {
            "looked_ns": facts.alive.looked_ns,
            "jobs": [msgspec.structs.asdict(stand) for stand in facts.alive.jobs],
            "tables": [
                {"table": table, "written_ns": written_ns}
                for table, written_ns in facts.alive.written_ns.items()
            ],
        },
        "sources": {
            "lanes": len(lags),
            "lagging": sum(1 for lag in lags.values() if lag),
            "lag_messages": sum(lags.values()),
        },
    }


def _stream(info: Json) -> Json:
    state, config = info["state"], info["config"]
    cluster = info.get("cluster") or {}
    return {
        "stream": config["name"],
        "messages": state["messages"],
        "bytes": state["bytes"],
        "bytes_max": config.get("max_bytes", -1),
        "last_seq": state["last_seq"],
        "consumers": state["consumer_count"],
        "leader": cluster.get("leader", ""),
        "replicas": [
            {
                "name": each.get("name", "?"),
                "current": bool(each.get("current", True)) and not each.get("offline"),
                "lag": each.get("lag", 0),
            }
            for each in cluster.get("replicas") or []
        ],
    }


def _shards(streams: list[Json], facts: HealthFacts) -> Iterator[Json]:
    for info in streams:
        name, last = info["config"]["name"], info["state"]["last_seq"]
        if name in facts.read:
            yield {
                "stream": name,
                "last_seq": last,
                "read_seq": facts.read[name],
                "behind": max(0, last - facts.read[name]),
                "quarantined": facts.quarantined.get(name, 0),
            }


def _worst(consumers: list[Json]) -> list[Json]:
    return sorted(consumers, key=lambda info: -info["num_pending"])[:_CONSUMERS_SHOWN]


def _consumer(info: Json) -> Json:
    return {
        "stream": info["stream_name"],
        "consumer": info["name"],
        "pending": info["num_pending"],
        "ack_pending": info["num_ack_pending"],
    }

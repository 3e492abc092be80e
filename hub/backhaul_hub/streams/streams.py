"""The hub's streams and consumers, declared in one place, and how they are brought into being.

`reconcile` creates what is missing, updates what may be updated in place, and refuses, with the
differences, what may not: the hub never deletes a stream to change it.
"""

from __future__ import annotations

from backhaul_codec.protocol.push import PUSHES
from backhaul_codec.subjects import DICTIONARY_STREAM, IMPORT, IMPORT_STREAM
from backhaul_hub.config import HubConfig
from backhaul_hub.errors import JetStreamError, LimitsLoweredError, StreamConflictError
from backhaul_hub.lane_names import DOWN
from backhaul_hub.nats.jetstream import JetStreamApi, Json
from backhaul_hub.shards import API, PUSH, is_passing, is_shard, relay_name, up_name
from backhaul_hub.streams.twin_streams import twin_streams
from backhaul_runtime.jetstream import (
    INSUFFICIENT_STORAGE,
    NO_SUITABLE_PEERS,
    REPLICAS_NOT_SUPPORTED,
    SUBJECTS_OVERLAP,
    lasting,
)

QUARANTINE = "QUARANTINE"
JOURNAL = "JOURNAL"
"""What the transactions of hub.db go to before they are committed, where there are stand-bys (ADR 50)."""
JOURNAL_SUBJECT = "journal.entry"
AUDIT = "AUDIT"
"""Who asked, changed, commanded and erased what (ADR 58)."""
AUDIT_SUBJECT = "audit.entry"
SOURCED_ONLY = "hub.sourced-only"
"""What begins the subject that a shard of UP has and nobody publishes on."""
_SECOND_NS = 1_000_000_000
_DAY_NS = 86_400 * _SECOND_NS

# What a server lets nobody change on a living stream, or what would drop data if it changed.
_FIXED = ("storage", "retention", "max_consumers", "mirror", "persist_mode")
# Lists that may grow in place. An entry taken away, or made another, leaves what it brought under a
# name that nobody reads, or brings all of it once more.
_GROWING = ("subjects", "sources")
_HINTS = {
    INSUFFICIENT_STORAGE: "free some disk, raise max_file_store in hub.conf, or lower this stream's"
    " ..._bytes_max or bytes_max in hub.toml: it is set aside whole",
    SUBJECTS_OVERLAP: "another stream takes these subjects: move that one, or say another [twin] env",
    NO_SUITABLE_PEERS: "fewer servers of the cluster are there, and have room, than replicas in hub.toml",
    REPLICAS_NOT_SUPPORTED: "replicas in hub.toml is for a cluster of as many servers",
}
PUSH_AGE_NS = 120 * 1_000_000_000
PUSH_BYTES_MAX = 64 << 20
"""What PUSH holds at most, of all vehicles: a relay takes a message within moments, or its vehicle has it sourced."""
RELAY_AGE_NS = 120 * 1_000_000_000
RELAY_MESSAGES_MAX = 250_000
"""What a relay holds at most, of all vehicles of a shard: UP takes a message within moments. With `max_bytes` the
server would set that much memory aside for every shard."""


def declared_streams(config: HubConfig) -> list[Json]:
    """Declare every stream of this hub, without the sources that come and go with devices."""
    up = {
        "max_bytes": config.up.bytes_max,
        "max_age": config.up.age_days_max * _DAY_NS,
    }
    down = {
        "name": DOWN,
        "subjects": ["in.>"],
        # The newest word on a subject is the only one a device needs after an outage.
        "max_msgs_per_subject": 1,
        "max_bytes": config.down.bytes_max,
        # One durable a device; the server's default of 1,000 is too few and -1 means it.
        "max_consumers": 100_000,
        # Not 1: a consumer at 0 that is reset while nats-server 2.15.1 writes its state file answers
        # with the state in that file, and the source passes over what it calls delivered (ADR 1).
        "first_seq": 2,
        # All watermarks of a turn in one batch, synced once.
        "allow_atomic": True,
    }
    quarantine = {
        "name": QUARANTINE,
        "subjects": ["quarantine.>"],
        "max_bytes": config.quarantine.bytes_max,
    }
    # Of each vehicle a few, 16 KiB at most, kept for as long as any reader may want one: hub.db says which.
    dictionaries = {
        "name": DICTIONARY_STREAM,
        "subjects": ["dict.>"],
        "max_msgs_per_subject": 1,
    }
    # Nobody takes anything out of it, and no limit does.
    audit = {
        "name": AUDIT,
        "subjects": [AUDIT_SUBJECT],
        "deny_delete": True,
        "deny_purge": True,
        "discard": "new",
        "max_bytes": -1,
    }
    # Only sources write to UP. A stream without a subject of its own would be given its name as
    # one, and a stream whose last source leaves must have some.
    shards: list[Json] = [
        {"name": up_name(shard), "subjects": [f"{SOURCED_ONLY}.{up_name(shard)}"]} | up
        for shard in range(config.fleet.shards)
    ]
    # Vehicles' sources come and go here, in a small stream: for each that is added the server reads back
    # through the whole stream, and all sources of it wait (ADR 44).
    relays: list[Json] = [
        {
            "name": relay_name(shard),
            "subjects": [f"{SOURCED_ONLY}.{relay_name(shard)}"],
            "storage": "memory",
            "max_age": RELAY_AGE_NS,
            "max_msgs": RELAY_MESSAGES_MAX,
        }
        for shard in range(config.fleet.shards)
    ]
    # Nobody waits for an answer, so the server is to send none wherever a message says.
    push = {
        "name": PUSH,
        "subjects": [PUSHES],
        "storage": "memory",
        "no_ack": True,
        "max_age": PUSH_AGE_NS,
        "max_bytes": PUSH_BYTES_MAX,
    }
    twin = twin_streams(config, [shard["name"] for shard in shards])
    every = (*shards, push, *relays, down, quarantine, dictionaries, audit, *twin)
    journal = [journal_stream(config)] if config.standby.machine else []
    return [*(_common(config) | stream for stream in every), *journal]


def _common(config: HubConfig) -> Json:
    return {
        "storage": "file",
        "retention": "limits",
        "discard": "old",
        "num_replicas": config.streams.replicas,
        "allow_direct": True,
    }


def journal_stream(config: HubConfig) -> Json:
    """Declare JOURNAL. It is bounded: a machine that is further behind takes a whole copy of hub.db instead."""
    return _common(config) | {
        "name": JOURNAL,
        "subjects": [JOURNAL_SUBJECT],
        # An entry larger than a message is stored as several, whole or not at all.
        "allow_atomic": True,
        "max_bytes": config.standby.journal_bytes_max,
        # What was acknowledged stays until the limit drops it.
        "deny_delete": True,
        "deny_purge": True,
    }


def import_stream(config: HubConfig) -> Json:
    """Declare the stream of operators' imports: in account HUB, where no vehicle is.

    It is made with the first import: no other hub sets room aside for it.
    """
    return _common(config) | {
        "name": IMPORT_STREAM,
        "subjects": [f"{IMPORT}.>"],
        "discard": "new",
        "max_age": config.up.age_days_max * _DAY_NS,
    }


def differences(declared: Json, existing: Json) -> tuple[list[str], list[str]]:
    """Compare declared with existing streams: (updatable, fixed) differences, in words."""
    updatable: list[str] = []
    fixed: list[str] = []
    for key, wanted in declared.items():
        found = existing.get(key)
        if found == wanted:
            continue
        if key in _GROWING:
            found = found or []
            new = [each for each in wanted if each not in found]
            gone = [each for each in found if each not in wanted]
            updatable += [f"{key} lacks {each!r}" for each in new]
            fixed += [f"{key} has {each!r}, not wanted" for each in gone]
        else:
            words = f"{key} is {found!r}, wanted {wanted!r}"
            (fixed if key in _FIXED else updatable).append(words)
    return updatable, fixed


def lowered(declared: Json, existing: Json) -> list[str]:
    """Return the limits that are declared lower than they are, in words: applied, they drop data."""
    found = []
    for key, unlimited in (("max_bytes", -1), ("max_age", 0), ("max_msgs_per_subject", -1)):
        wanted, is_now = declared.get(key, unlimited), existing.get(key, unlimited)
        if wanted != unlimited and (is_now == unlimited or wanted < is_now):
            found.append(f"{key} is {is_now}, wanted {wanted}")
    return found


def planned(declared: Json, existing: Json | None, *, lower_limits: bool = False) -> list[str]:
    """Return the changes that bring one stream in line, in words; nothing where it is.

    Sources of UP are none of it: they belong to the devices that are connected. Limits are lowered
    with `lower_limits` only, since that drops what is beyond them for good. ``existing`` is the
    stream's configuration, None where there is no such stream.

    Raises:
        StreamConflictError: it exists and differs in what cannot change in place.
        LimitsLoweredError: a limit is to be lowered, and nobody said that it may.
    """
    name = declared["name"]
    if existing is None:
        return [f"create {name}"]
    updatable, fixed = differences(lasting(declared), existing)
    if fixed:
        raise StreamConflictError(name, fixed)
    if (limits := lowered(declared, existing)) and not lower_limits:
        raise LimitsLoweredError(name, limits)
    return [f"update {name}: {change}" for change in updatable]


async def reconcile(api: JetStreamApi, declared: Json, *, lower_limits: bool = False) -> list[str]:
    """Bring one stream in line; return the changes, in words.

    Raises:
        StreamConflictError, LimitsLoweredError: as `planned`.
        JetStreamError: the server refused.
    """
    try:
        return await _reconcile(api, declared, lower_limits=lower_limits)
    except JetStreamError as error:
        error.hint = _HINTS.get(error.err_code, "")
        raise


async def _reconcile(api: JetStreamApi, declared: Json, *, lower_limits: bool) -> list[str]:
    name = declared["name"]
    info = await api.stream_info(name)
    existing = info["config"] if info else None
    to_do = planned(declared, existing, lower_limits=lower_limits)
    if existing is None:
        await api.create_stream(declared)
    elif to_do:
        await api.update_stream(existing | lasting(declared))
    return to_do


async def stream_names(api: JetStreamApi, *, timeout_s: float | None = None) -> set[str]:
    """Return the names of all streams, of account UP and of the other; `timeout_s`: for an answer, other than usual.

    Raises:
        HubError: the server refused, or nobody answered.
    """
    found: set[str] = set()
    for prefix in ("", API):
        found |= await names(api, "STREAM.NAMES", "streams", prefix, timeout_s=timeout_s)
    return found


async def names(
    api: JetStreamApi, verb: str, key: str, prefix: str = "", *, timeout_s: float | None = None
) -> set[str]:
    """Return the items of a request with pages under `key`; `prefix` and `timeout_s` as `JetStreamApi.request`.

    Raises:
        HubError: the server refused, or nobody answered.
    """
    found: set[str] = set()
    while True:
        answer = await api.request(verb, {"offset": len(found)}, api=prefix, timeout_s=timeout_s)
        page = answer.get(key) or []
        found.update(page)
        if not page or len(found) >= answer["total"]:
            return found


async def quiet_undeclared_shards(api: JetStreamApi, shards: int) -> list[str]:
    """Take the sources off shards that are no longer declared; return the names of their streams.

    They would go on taking in what devices send, and nobody reads them. What they hold stays.

    Raises:
        HubError: the server refused, or nobody answered.
    """
    declared = {name(shard) for name in (up_name, relay_name) for shard in range(shards)}
    quieted = []
    for name in sorted(await stream_names(api)):
        if name == PUSH or not (is_shard(name) or is_passing(name)) or name in declared:
            continue
        config = (await api.info(name))["config"]
        if config.get("sources"):
            await api.update_stream(config | {"sources": []})
            quieted.append(name)
    return quieted

"""The shards of UP, and how account HUB reaches them: they stand in an account of their own. Pure.

The server publishes an empty message wherever the leaf behind a source tells it to, in the account of
the sourcing stream. So UP's account holds nothing that such a message could harm, and JetStream's
API has no name there that could be guessed (ADR 25). HUB imports it, as `API`.
"""

from __future__ import annotations

import re
import zlib

from backhaul_runtime import jetstream

API = "upapi"
"""JetStream's API of account UP, as account HUB knows it."""
JOINED = "migrateapi.INFO"
"""What tells in account UP that the other hub's is joined to it (migrate/bridge.py)."""
DELIVERIES = "updeliver"
"""What begins every subject on which account HUB hears something of account UP."""
PUSH = "PUSH"
"""The stream of account UP that captures messages which vehicles push, in memory; the relays source it."""
_SHARD = re.compile(r"UP_\d{2}")
_RELAY = re.compile(r"RELAY_\d{2}")


def up_name(shard: int) -> str:
    """Return the name of an UP shard."""
    return f"UP_{shard:02d}"


def relay_name(shard: int) -> str:
    """Return the name of the relay between the vehicles of a shard and its UP stream."""
    return f"RELAY_{shard:02d}"


def is_passing(name: str) -> bool:
    """Tell whether a stream stands in memory, with messages on their way into UP."""
    return name == PUSH or _RELAY.fullmatch(name) is not None


def is_shard(name: str) -> bool:
    """Tell whether a stream is a shard of UP, declared or not."""
    return _SHARD.fullmatch(name) is not None


def _is_in_up(name: str) -> bool:
    return is_passing(name) or is_shard(name)


def shard_of(device: str, shards: int) -> int:
    """Return the shard of a device: stable over restarts and languages (CRC-32)."""
    return zlib.crc32(device.encode()) % shards


def api_subject(verb: str) -> str:
    """Return where account HUB asks for an action of JetStream's API: by the stream it names."""
    return f"{API if any(map(_is_in_up, verb.split('.'))) else jetstream.API}.{verb}"


def inbox_subject(stream: str, inbox: str) -> str:
    """Return the subject on which account HUB hears a stream's messages, by an inbox that nobody can guess."""
    return f"{DELIVERIES}.{inbox}" if is_shard(stream) else inbox

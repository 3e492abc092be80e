"""Streams of one hub as mirrors at another: made, watched, and made streams of their own.

A mirror keeps sequences and times, and takes in what comes while the old hub works. What it cannot be
of, a work queue and a stream that is a mirror itself, has to be copied whole.
"""

from __future__ import annotations

import asyncio

from backhaul_hub.errors import BackupError, HubError, JetStreamError
from backhaul_hub.migrate.bridge import API, CONSUMER, deliver_subject
from backhaul_hub.nats.jetstream import JetStreamApi, Json
from backhaul_hub.shards import is_shard
from backhaul_hub.streams.streams import stream_names

# More than are under way on any path while each is synced there. With a window that takes seconds to
# sync the server takes the mirror for stalled, and says so in its log.
_WINDOW_MESSAGES = 1000
_HEARTBEAT_NS = 1_000_000_000
_ASKED_S, _LEADER_S_MAX = 2.0, 60.0
# Said of a stream when it is made a normal one again: a mirror may not have them, or must not yet.
_LATER = ("subjects", "sources", "first_seq", "deny_delete", "deny_purge", "republish")


async def until_it_answers(api: JetStreamApi, place: str) -> None:
    """Wait until JetStream answers there.

    Servers of a cluster that have just started leave questions without an answer until they have a leader.

    Raises:
        BackupError: it does not, for a minute.
    """
    said: HubError | None = None
    try:
        async with asyncio.timeout(_LEADER_S_MAX):
            while True:
                try:
                    await stream_names(api, timeout_s=_ASKED_S)
                except HubError as error:
                    said = error
                    await asyncio.sleep(_ASKED_S / 10)
                else:
                    return
    except TimeoutError:
        raise BackupError(
            f"JetStream at {place} does not answer: {said}",
            hint="of a cluster most servers have to run; see their logs",
        ) from None


def can_be_mirrored(config: Json) -> bool:
    """Tell whether another stream may be a mirror of this one. Pure."""
    return config["retention"] == "limits" and not config.get("mirror")


def mirror_of(config: Json, secret: str) -> Json:
    """Return the configuration of a mirror of the stream that has this one; `secret` as in migrate/bridge.py. Pure."""
    name = config["name"]
    mirror = {
        "name": name,
        "external": {"api": API, "deliver": ""},
        "consumer": {"name": CONSUMER, "deliver_subject": deliver_subject(name, secret)},
    }
    kept = {key: value for key, value in config.items() if key not in _LATER}
    return kept | {"mirror": mirror}


def promoted(config: Json) -> Json:
    """Return the configuration of the stream that a mirror becomes. Pure."""
    # Sources of UP come with the vehicles that connect.
    return config | ({"sources": []} if is_shard(config["name"]) else {})


async def begin_mirror(old: JetStreamApi, new: JetStreamApi, config: Json, secret: str) -> bool:
    """Have the new server mirror a stream of the old one; return whether it does.

    Raises:
        HubError: nobody answers.
    """
    name = config["name"]
    consumer = {
        "name": CONSUMER,
        "durable_name": CONSUMER,
        "deliver_subject": deliver_subject(name, secret),
        "deliver_policy": "all",
        # As sources of UP have them (ADR 1): a mirror by one of these goes on at once after a cut, by
        # one of the server's own after 10 to 120 s.
        "ack_policy": "flow_control",
        "max_ack_pending": _WINDOW_MESSAGES,
        "flow_control": True,
        "idle_heartbeat": _HEARTBEAT_NS,
    }
    try:
        await old.set_consumer(name, consumer)
        if await new.stream_info(name) is None:
            await new.create_stream(mirror_of(config, secret))
    except JetStreamError:
        # A setting that no mirror may have: copied whole, it is as it was.
        await end_mirror(old, name)
        return False
    return True


async def end_mirror(old: JetStreamApi, name: str) -> None:
    """Take the mirror's consumer away from the old server.

    Raises:
        HubError: nobody answers.
    """
    await old.delete_consumer(name, CONSUMER)


async def all_mirrored(old: JetStreamApi, new: JetStreamApi, name: str) -> bool:
    """Tell whether a mirror has taken all that the stream will ever send it.

    Raises:
        HubError: nobody answers.
    """
    was = (await old.info(name))["state"]
    now = (await new.info(name))["state"]
    if not was["messages"] or now["last_seq"] >= was["last_seq"]:
        return True
    # Its last message was deleted before it could be sent.
    consumer = await old.consumer_info(name, CONSUMER)
    return consumer is not None and not consumer["num_pending"] + consumer["num_ack_pending"]

"""Where TWIN_STATE stood when the last control plane ended, found out at the start of the next.

It may have been killed before it had published all that it had read. So the newest readings begin
with what TWIN_STATE holds, lest an old value replace a newer one; then the last messages of UP that
were read are looked at once more.
"""

from __future__ import annotations

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.api import DeliverPolicy

from backhaul_codec.state.merge import HeadKey
from backhaul_hub.continuity.examine import UnreadableError, examine
from backhaul_hub.errors import HubError
from backhaul_hub.nats.ephemeral_reader import pending
from backhaul_hub.nats.stream_reader import StoredReader
from backhaul_hub.streams.twin_streams import STATE
from backhaul_hub.sync.heads import FleetHeads
from backhaul_hub.sync.newest_readings import DeviceSeries, Reading, Readings
from backhaul_hub.twin.state_messages import read_state
from backhaul_hub.uplink.dictionaries import Dictionaries

LOOK_BACK_MESSAGES = 8192
"""Of each UP stream: far more than are ever read and wait to be published."""

_READ_MESSAGES = 512


async def recall(client: Client, heads: FleetHeads, readings: Readings) -> None:
    """Take in TWIN_STATE's value of every series; heads are known already, from hub.db.

    Raises:
        HubError: the server did not answer.
    """
    try:
        last = pending(client, STATE, DeliverPolicy.LAST_PER_SUBJECT, filter_subject=">")
        async for message in last:
            if (found := read_state(message.data)) is None:
                continue
            key, stated = found
            series = DeviceSeries(key.node, key.type, key.key)
            head = heads.get(key.device, HeadKey("", *series))
            if head is None or head.time != stated.time:
                readings.restore(key.device, series, Reading(stated.time, stated.value))
    except NatsError as error:
        raise HubError(f"{STATE} cannot be read: {error}") from error


async def look_back(
    client: Client, stream: str, end: int, readings: Readings, dictionaries: Dictionaries
) -> None:
    """Take the readings once more of the messages of an UP stream up to sequence `end`.

    `dictionaries`: what they are packed against.

    Raises:
        HubError: the server did not answer.
    """
    seq, reader = max(1, end - LOOK_BACK_MESSAGES + 1), StoredReader(client, stream)
    while seq <= end:
        messages = await reader.read(seq, min(_READ_MESSAGES, end + 1 - seq))
        if not messages:
            break
        await dictionaries.prepare(messages)
        for message in messages:
            try:
                said = examine(message.subject, message.body, dictionaries.find)
            except UnreadableError:
                continue
            readings.on_message(said, False)
        seq = messages[-1].seq + 1
    readings.take_changes()

"""Reading a stream's messages, through a consumer that lives for this one reading."""

from __future__ import annotations

from collections.abc import AsyncIterator

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

_FETCH_MESSAGES = 512
_TIMEOUT_S = 10.0


async def pending(
    client: Client, stream: str, policy: DeliverPolicy, **which: object
) -> AsyncIterator[Msg]:
    """Yield a stream's messages now, in order.

    ``which``: the rest of the consumer's configuration, as `filter_subject`.

    Raises:
        NatsError: the server refused, or did not answer; or a connection was lost, and a part with it.
    """
    js = client.jetstream(timeout=_TIMEOUT_S)
    config = ConsumerConfig(
        deliver_policy=policy, ack_policy=AckPolicy.NONE, inactive_threshold=60.0, mem_storage=True
    )
    info = await js.add_consumer(stream, config.evolve(**which))
    left = wanted = info.num_pending or 0
    try:
        subscription = await js.pull_subscribe_bind(info.name, stream)
        while left > 0:
            batch = await subscription.fetch(min(left, _FETCH_MESSAGES), timeout=_TIMEOUT_S)
            left -= len(batch)
            for message in batch:
                yield message
    except TimeoutError as error:
        # What has aged out meanwhile does not come any more; all else is missing.
        now = await js.consumer_info(stream, info.name)
        delivered = now.delivered.consumer_seq if now.delivered else 0
        if now.num_pending or delivered > wanted - left:
            raise NatsTimeoutError from error
    finally:
        await js.delete_consumer(stream, info.name)

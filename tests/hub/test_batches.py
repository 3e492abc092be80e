"""Many messages in atomic batches, on a real server."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from backhaul_hub.errors import JetStreamError
from backhaul_hub.nats.jetstream import JetStreamApi, Json, Publication
from tests.support.rig import patient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from tests.support.nats_server import NatsServer

pytestmark = pytest.mark.nats


@contextlib.asynccontextmanager
async def down(server: NatsServer, **config: object) -> AsyncIterator[JetStreamApi]:
    """Make a stream, and yield the API that writes into it."""
    client = await patient.connect(server.url)
    api = JetStreamApi(client)
    try:
        await api.request("STREAM.CREATE.DOWN", {"name": "DOWN", "subjects": ["in.>"]} | config)
        yield api
    finally:
        await client.close()


def words(count: int, size: int = 1) -> list[Publication]:
    return [(f"in.VID-{number:04}.s", b"%d" % number * size) for number in range(count)]


async def test_each_message_is_stored_and_heard_of_and_the_server_answers_once_a_batch(
    nats_server: NatsServer,
) -> None:
    async with down(nats_server, allow_atomic=True) as api:
        answers, taken, published = list[Json](), list[Publication](), list[Publication]()

        async def note(subject: str, body: bytes) -> None:
            published.append((subject, body))

        api.on_stored, api.on_published = answers.append, note
        await api.publish_all(words(1003), taken=taken.extend)
        assert taken == published == words(1003)
        assert [answer["seq"] for answer in answers] == [500, 1000, 1001, 1002, 1003]
        state = (await api.request("STREAM.INFO.DOWN"))["state"]
        assert state["messages"] == 1003


async def test_large_messages_go_in_batches_of_a_megabyte(nats_server: NatsServer) -> None:
    async with down(nats_server, allow_atomic=True) as api:
        some, sizes, taken = words(30, size=60_000), list[int](), list[Publication]()

        def note(part: Sequence[Publication]) -> None:
            taken.extend(part)
            sizes.append(sum(len(body) for _, body in part))

        await api.publish_all(some, taken=note)
        assert taken == some
        assert max(sizes) <= 1 << 20


async def test_of_a_batch_that_is_refused_nothing_is_taken(nats_server: NatsServer) -> None:
    async with down(nats_server) as api:
        taken = list[Publication]()
        with pytest.raises(JetStreamError):
            await api.publish_all(words(20), taken=taken.extend)
        assert taken == []
        assert (await api.request("STREAM.INFO.DOWN"))["state"]["messages"] == 0

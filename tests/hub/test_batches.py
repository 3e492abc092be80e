"""Many messages in atomic batches, on a real server."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, cast

import pytest
from nats import errors

from backhaul_hub.errors import JetStreamError
from backhaul_hub.nats.jetstream import JetStreamApi, Json, Publication
from tests.support.rig import patient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from backhaul_runtime.patched_client import PatchedClient
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

        async def note(messages: Sequence[Publication]) -> None:
            published.extend(messages)

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


async def test_messages_published_together_come_as_those_published_one_by_one(
    nats_server: NatsServer,
) -> None:
    async with down(nats_server) as api:
        client = cast("PatchedClient", api._client)
        heard = await client.subscribe("say.*")
        await client.publish("say.a", b"1", headers={"X": "y"})
        await client.publish("say.b", b"")
        await client.publish_many(
            [("say.a", b"NATS/1.0\r\nX: y\r\n\r\n", b"1"), ("say.b", b"", b"")]
        )
        come = [await heard.next_msg(timeout=30) for _ in range(4)]
        seen = [(each.subject, each.headers, each.data) for each in come]
        assert seen[:2] == seen[2:]
        for bad in ("", "say a", "say\r\nPUB"):
            with pytest.raises(errors.BadSubjectError):
                await client.publish_many([("say.c", b"", b""), (bad, b"", b"")])
        with pytest.raises(errors.MaxPayloadError):
            await client.publish_many([("say.c", b"", b""), ("say.d", b"", bytes(2 << 20))])
        await client.publish("say.end", b"")
        assert (await heard.next_msg(timeout=30)).subject == "say.end"

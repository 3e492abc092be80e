"""The server of history over a real server: several questions at a time, bounded, and ended well."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_codec.protocol.history import SUBJECT, Alive, JobStand
from backhaul_spark.errors import QuestionError, UnreachableError
from backhaul_spark.nats.endpoint import endpoint_from
from backhaul_spark.serve.server import AT_ONCE, UNDER_WAY_MAX, WAITING_MAX, HistoryServer
from tests.support.rig import patient
from tests.support.rig.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from nats.aio.client import Client

    from backhaul_codec.protocol.history import PastQuestion
    from tests.support.spark_server import HubServer

pytestmark = pytest.mark.nats
LOGIN = {"user": "control", "password": "all"}
QUESTION = {"device": "VID-001", "node": "gps", "type": "speed", "from_us": 0, "to_us": 1}
WAIT_S = 60.0
ALIVE = Alive(1, (JobStand("ingest", 3, 60),))


@asynccontextmanager
async def serving(
    hub: HubServer, answer: Callable[[PastQuestion], dict[str, Any]]
) -> AsyncIterator[Client]:
    """Yield a client that asks a running server."""
    endpoint = endpoint_from({"servers": hub.url} | LOGIN)
    stopping, ready = asyncio.Event(), asyncio.Event()
    client = await patient.connect(hub.url, **LOGIN)
    try:
        async with asyncio.timeout(2 * WAIT_S), asyncio.TaskGroup() as group:
            server = HistoryServer(answer, endpoint, alive=lambda: ALIVE)
            group.create_task(server.run(stopping, ready.set))
            await ready.wait()
            yield client
            stopping.set()
    finally:
        await client.close()


async def ask(client: Client, body: bytes) -> Any:
    return json.loads((await client.request(SUBJECT, body, timeout=WAIT_S)).data)


async def test_each_question_has_an_answer_or_a_refusal(hub_server: HubServer) -> None:
    def answer(question: PastQuestion) -> dict[str, Any]:
        if question.type == "slow":
            raise QuestionError("too long", "ask for less")
        if question.type == "odd":
            raise RuntimeError("nobody foresaw it")
        return {"device": question.device}

    async with serving(hub_server, answer) as client:
        assert await ask(client, json.dumps(QUESTION).encode()) == {"device": "VID-001"}
        slow = await ask(client, json.dumps(QUESTION | {"type": "slow"}).encode())
        assert slow == {"error": {"message": "too long", "hint": "ask for less"}}
        odd = await ask(client, json.dumps(QUESTION | {"type": "odd"}).encode())
        assert "its log has the traceback" in odd["error"]["hint"]
        for wrong in ({"points_max": 5000}, {"device": "*"}, {"device": "VID-001.>"}, {"to": 1}):
            assert "error" in await ask(client, json.dumps(QUESTION | wrong).encode())
        for nothing in (b"[]", b"{", b"{}"):
            assert "error" in await ask(client, nothing)
        assert (await ask(client, b""))["jobs"] == [{"job": "ingest", "behind": 3, "still_s": 60.0}]


async def test_some_are_worked_at_some_wait_and_others_are_refused(hub_server: HubServer) -> None:
    go, busy = threading.Event(), threading.Semaphore(0)

    def answer(_: PastQuestion) -> dict[str, Any]:
        busy.release()
        assert go.wait(WAIT_S)
        return {"done": True}

    async with serving(hub_server, answer) as client:
        bodies = [json.dumps(QUESTION | {"to_us": at}).encode() for at in range(UNDER_WAY_MAX + 1)]
        asked = [asyncio.create_task(ask(client, body)) for body in bodies[1:]]
        for _ in range(AT_ONCE):
            assert await asyncio.to_thread(busy.acquire, timeout=WAIT_S)
        # All of those before are under way by then: messages of one connection come in order.
        refused = await ask(client, bodies[0])
        assert refused["error"]["message"] == "too many questions at once"
        assert "jobs" in await ask(client, b""), "whoever looks is answered"
        assert not busy.acquire(blocking=False), f"no more than {AT_ONCE}"
        go.set()
        assert await asyncio.gather(*asked) == [{"done": True}] * UNDER_WAY_MAX


async def test_who_asks_again_has_the_answer_too_and_the_work_is_done_once(
    hub_server: HubServer,
) -> None:
    go, began = threading.Event(), threading.Semaphore(0)

    def answer(question: PastQuestion) -> dict[str, Any]:
        began.release()
        assert go.wait(WAIT_S)
        return {"to_us": question.to_us}

    async with serving(hub_server, answer) as client:
        body = json.dumps(QUESTION).encode()
        asked = [asyncio.create_task(ask(client, body)) for _ in range(WAITING_MAX)]
        assert await asyncio.to_thread(began.acquire, timeout=WAIT_S)
        # All of those before wait by then: messages of one connection come in order.
        refused = await ask(client, body)
        assert refused["error"]["message"] == "too many questions at once"
        go.set()
        assert await asyncio.gather(*asked) == [{"to_us": 1}] * WAITING_MAX
        assert not began.acquire(blocking=False), "the work was done once"
        assert await ask(client, body) == {"to_us": 1}
        assert began.acquire(blocking=False), "whoever asks later has a new answer"


async def test_a_hub_that_is_not_there_is_named() -> None:
    endpoint = endpoint_from({"servers": f"nats://127.0.0.1:{free_port()}"} | LOGIN)
    with pytest.raises(UnreachableError, match="cannot reach the hub"):
        await HistoryServer(lambda _: {}, endpoint, connect_s=0.2).run(asyncio.Event())

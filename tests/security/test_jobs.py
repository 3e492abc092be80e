"""A compromised Spark job: what it can do at the hub by the logins of ingest and twin, and what it cannot.

It has nats-py, which says what it is told, the job's own client, and for links that no client makes a
hand-written leaf. Before and after, all that streams hold is compared.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from backhaul_codec.protocol.history import SUBJECT
from backhaul_hub.nats.jwt import Account, account_jwt
from backhaul_hub.streams.streams import stream_names
from backhaul_spark.errors import StreamMissingError
from backhaul_spark.nats.direct_get import Reader
from backhaul_spark.sink.outgoing import Outgoing
from backhaul_spark.sink.publisher import Publisher
from tests.security.job_ground import (
    ALERT,
    ANSWER_S_MAX,
    COMMAND,
    DELETE,
    ELSEWHERE,
    HEADERS,
    READS,
    STREAMS,
    VERBS,
    Hub,
    _body,
    answered,
    opened,
    quiet,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from backhaul_spark.nats.connection import Connection


pytestmark = pytest.mark.nats


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    async with opened(tmp_path) as found:
        yield found


async def test_the_twin_job_reads_up_and_down_and_ingest_up_alone(hub: Hub) -> None:
    def read(connection: Connection) -> list[bytes]:
        reader = Reader(connection)
        found = reader.streams(["UP_*", "DOWN_*"])
        return [
            body
            for name, info in found.items()
            for part in reader.read(name, info.first_seq, info.last_seq)
            for body in part.bodies
        ]

    assert await hub.in_thread("twin", read) == [b"lit", b"seen"]
    assert await hub.in_thread("spark", read) == [b"seen"]
    with pytest.raises(StreamMissingError, match="DOWN_00"):
        await hub.in_thread("spark", lambda each: Reader(each).streams(["DOWN_00"]))
    body = json.dumps({"seq": 2}).encode()  # DOWN begins there
    _, said = await hub.in_thread(
        "twin", lambda each: each.request("downapi.STREAM.MSG.GET.DOWN_00", body)
    )
    assert json.loads(said)["message"]["subject"] == "in.VID-001.p.lamp.on.%"


async def test_the_twin_job_publishes_alerts_and_commands_each_once(hub: Hub) -> None:
    once = b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: 0\r\n\r\n"
    subjects = [f"{ALERT}{number}" for number in range(300)]

    def publish(again: int) -> Any:
        publisher = Publisher(hub.endpoint("twin"), give_up=lambda: True)
        try:
            publisher.publish([COMMAND], lambda each: Outgoing(each, b"", b"{}"))
            return publisher.publish(subjects, lambda each: Outgoing(each, once, b"%d" % again))
        finally:
            publisher.close()

    assert await asyncio.to_thread(publish, 1) == (300, 0, 0)
    assert await asyncio.to_thread(publish, 2) == (0, 300, 0)
    state = (await hub.api.request("STREAM.INFO.TWIN_EVENTS"))["state"]
    assert state["messages"] == 300
    assert (await hub.api.request("STREAM.INFO.TWIN_CMD"))["state"]["messages"] == 2


@pytest.mark.parametrize("user", ["spark", "twin", "history"])
async def test_a_job_reaches_nothing_else_by_any_name(hub: Hub, user: str) -> None:
    before = await hub.facts()
    async with hub.rig.connection(user, error_cb=quiet) as job:
        heard: dict[str, dict[str, Any]] = {}
        for prefix in (
            "$JS.API",
            "$JS.hub.API",
            "jobsapi",
            "downapi",
            "dictapi",
            "upapi",
            "hubapi",
        ):
            names = [
                f"{prefix}.{verb.format(stream)}"
                for verb in VERBS
                for stream in (STREAMS if "{}" in verb else ("",))
            ]
            found = await asyncio.gather(*(answered(job, name, _body(name)) for name in names))
            heard |= dict(zip(names, found, strict=True))
        # Its own account has no JetStream, nor is there a cluster, and it is told so.
        reached = {
            name: said
            for name, said in heard.items()
            if said and said.get("error", {}).get("err_code") not in (10039, 10010)
        }
        asks = {f"jobsapi.{verb}.{stream}" for verb in READS for stream in STREAMS}
        gets = {f"jobsapi.{verb}.UP_00" for verb in READS} | {"jobsapi.STREAM.LIST"}
        gets |= {f"dictapi.{verb}.DICT" for verb in READS}
        if user == "twin":
            gets |= {f"downapi.{verb}.DOWN_00" for verb in READS}
        assert reached.keys() <= asks | gets
        got = {name for name, said in reached.items() if "error" not in said}
        assert got <= gets
        for name in gets:
            if "INFO" in name:
                assert name in got or "config" in await answered(job, name, b"", ANSWER_S_MAX)
        subjects = [*ELSEWHERE, *((ALERT, COMMAND) if user != "twin" else ())]
        for subject in subjects:
            await job.publish(subject, b"{}")
        found = await asyncio.gather(*(answered(job, subject, b"{}") for subject in subjects))
        assert [said for said in found if said] == []
    assert await hub.facts() == before
    for name in ("TWIN_EVENTS", "TWIN_CMD"):
        assert (await hub.api.request(f"STREAM.INFO.{name}"))["state"]["messages"] == 0


async def test_the_answer_goes_to_the_job_alone_whatever_reply_it_names(hub: Hub) -> None:
    before = await hub.facts()
    read = json.dumps({"seq": 1}).encode()
    victims = (DELETE, "in.VID-001.c.1", "fleet.prod.veh.VID-001.state.a.b", "hub.reload", "up.x.y")
    async with hub.rig.connection("twin", error_cb=quiet) as job:
        for reply in victims:
            await job.publish(ALERT + reply[-1], b"{}", reply=reply)
            await job.publish(COMMAND, b"{}", reply=reply)
            for api in ("jobsapi.STREAM.INFO.UP_00", "jobsapi.DIRECT.GET.UP_00"):
                await job.publish(api, read, reply=reply)
            for api in ("downapi.STREAM.INFO.DOWN_00", "downapi.DIRECT.GET.DOWN_00"):
                await job.publish(api, read, reply=reply)
        await job.flush()
        # Each stream answers once it has taken what came before.
        for subject, stream in ((ALERT, "TWIN_EVENTS"), (COMMAND, "TWIN_CMD")):
            assert (await answered(job, subject, wait_s=ANSWER_S_MAX))["stream"] == stream
    async with hub.rig.connection("spark", error_cb=quiet) as job:
        for reply in (*victims, ALERT, COMMAND):
            for api in ("jobsapi.STREAM.INFO.UP_00", "jobsapi.DIRECT.GET.UP_00"):
                await job.publish(api, read, reply=reply)
        await job.flush()
    assert await hub.facts() == before
    commands = (await hub.api.request("STREAM.INFO.TWIN_CMD"))["state"]["messages"]
    assert commands == len(victims) + 1, "those of the twin job itself, and none of Spark's"


async def test_the_server_of_history_alone_is_asked_and_by_the_hub_alone(hub: Hub) -> None:
    async with AsyncExitStack() as stack:
        others = [
            await stack.enter_async_context(hub.rig.connection_in(account))
            for account in ("FLEET", "UP", "JOBS", "TWIN", "PEOPLE", "ENROL")
        ]

        async def pretend(message: Any) -> None:
            await message.respond(b'{"from": "somebody else"}')

        for other in others:
            for subject in (SUBJECT, "history.>", ">"):
                await other.subscribe(subject, cb=pretend)
            await other.flush()
        with pytest.raises(NoRespondersError):
            await hub.control.request(SUBJECT, b"{}", timeout=ANSWER_S_MAX)
        server = await stack.enter_async_context(hub.rig.connection("history"))
        heard: list[bytes] = []

        async def answer(message: Any) -> None:
            heard.append(message.data)
            await message.respond(b'{"from": "the server"}')

        await server.subscribe(SUBJECT, cb=answer)
        await server.flush()
        for other in others:
            assert await answered(other, SUBJECT, b"theirs") != {"from": "the server"}
        said = await answered(hub.control, SUBJECT, b"the hub's", ANSWER_S_MAX)
        assert said == {"from": "the server"}
        assert heard == [b"the hub's"]


async def test_no_header_has_a_stream_do_more_than_store(hub: Hub) -> None:
    await hub.api.publish("fleet.prod.veh.VID-002.evt.alert.a", b"{}")
    async with hub.rig.connection("twin", error_cb=quiet) as job:
        for headers in HEADERS:
            said = await answered(job, ALERT, b"{}", ANSWER_S_MAX, headers=headers)
            assert "error" in said, (headers, said)
    held = await hub.api.request("STREAM.INFO.TWIN_EVENTS", {"subjects_filter": ">"})
    assert list(held["state"]["subjects"]) == ["fleet.prod.veh.VID-002.evt.alert.a"]


async def test_a_trace_goes_nowhere_but_to_the_job(hub: Hub) -> None:
    before = await hub.facts()
    async with hub.rig.connection("twin", error_cb=quiet) as job:
        for target in ("in.VID-001.c.1", "hub.reload", DELETE, "fleet.prod.veh.VID-001.state.a.b"):
            headers = {"Nats-Trace-Dest": target, "Accept-Encoding": "identity"}
            await job.publish(ALERT + "0", b"{}", headers=headers)
            await job.publish(COMMAND, b"{}", headers=headers)
        await job.flush()
    assert await hub.facts() == before


async def test_a_job_hears_nothing_that_was_not_for_it(hub: Hub) -> None:
    heard: list[str] = []
    async with (
        hub.rig.connection("twin", error_cb=quiet) as twin,
        hub.rig.connection("spark", error_cb=quiet) as spark,
    ):

        async def hear(message: Any) -> None:
            heard.append(message.subject)

        for job in (twin, spark):
            for subject in (">", "fleet.>", "in.>", "up.>", "$SYS.>", "_INBOX.>"):
                with contextlib.suppress(NatsError):
                    await job.subscribe(subject, cb=hear)
            await job.flush()
        for subject in (
            "in.VID-001.c.1",
            COMMAND,
            ALERT,
            "up.a.b.c.d",
            "fleet.prod.veh.VID-001.res.1",
        ):
            await hub.control.publish(subject, b"{}")
        await hub.control.flush()
        for job in (twin, spark):
            await job.flush()
        assert heard == []


@asynccontextmanager
async def with_leafs(patch: pytest.MonkeyPatch, directory: Path) -> AsyncIterator[Hub]:
    """A hub that lets jobs come as leafs."""

    def written(account: Account, *rest: Any, **more: Any) -> str:
        return account_jwt(replace(account, leafs=True), *rest, **more)

    patch.setattr("backhaul_hub.access.rules.account_jwt", written)
    async with opened(directory) as found:
        yield found


async def forge(hub: Hub, user: str) -> None:
    """Have the hub told to delete streams, by a reply that no client may use (ADR 17)."""
    leaf = await hub.leaf(user)
    for subject in ("jobsapi.STREAM.INFO.UP_00", "downapi.STREAM.INFO.DOWN_00", ALERT):
        for stream in ("UP_00", "TWIN_EVENTS"):
            reply = f"$JS.ACK.a.b.1.1.1.1.0@$JS.API.STREAM.DELETE.{stream}"
            await leaf.publish(subject, b"", reply=reply)
    await leaf.flush()
    await leaf.close()


@pytest.mark.parametrize("user", ["spark", "twin", "history"])
async def test_no_job_comes_as_a_leaf_which_could_say_any_subject(hub: Hub, user: str) -> None:
    before = await hub.facts()
    await forge(hub, user)
    leaf = await hub.leaf(user)
    assert not await leaf.logged_in()
    await leaf.close()
    assert await hub.facts() == before


@pytest.mark.parametrize(("user", "stream"), [("spark", "UP_00"), ("twin", "TWIN_EVENTS")])
async def test_as_a_leaf_it_would_get_through(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, user: str, stream: str
) -> None:
    async with with_leafs(monkeypatch, tmp_path) as hub:
        await forge(hub, user)
        async with asyncio.timeout(60):
            while stream in await stream_names(hub.api):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

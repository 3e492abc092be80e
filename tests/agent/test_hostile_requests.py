"""Whatever a program asks, and however: it is answered, with what it wanted or with a code, and the agent lives on."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from backhaul_agent.artifacts.manager import Artifacts
from backhaul_agent.client import connect
from backhaul_agent.errors import Code, RefusedError
from backhaul_agent.history import service as history_service
from backhaul_agent.ingest.parse import Intake
from backhaul_agent.ingest.replay_book import Bundle, KeptQuestion, ReplayBook
from backhaul_agent.ingest.replay_service import KEPT, PUT
from backhaul_agent.sync import service as config_service
from tests.agent.bench import bench
from tests.support.agent_streams import points_of
from tests.support.hostile_json import TOKENS, Hostile

if TYPE_CHECKING:
    from pathlib import Path

    from tests.agent.bench import Bench
    from tests.support.nats_server import NatsServer

pytestmark = [pytest.mark.nats]

ANSWER_S_MAX = 60.0  # of many questions at once, on a machine that does other things too
DIGEST = "0" * 64
POINTS = (
    '{"node": "gps", "points": [{"type": %, "value": %, "dtype": %}]}',
    '{"node": "gps", "points": [{"type": "a", "key": %, "delete": %}], "parent": %}',
)
ONE = ("%", '{"value": %}', '{"value": %, "time": %}', '{"value": %, "dtype": %, "lane": %}')
SEVERAL = ('{"soc": %, "t": %}', '{"soc": {"value": %, "dtype": %}, "time": %}', '{"a": %, "a": 1}')
EVENT = ('{"data": %}', '{"previous": %, "reason": %, "time": %}')
GET = ('{"deleted": %, "parent": %}',)
NODES = (
    '{"node": %, "parent": %}',
    '{"node": %, "to": %, "from": %}',
    '{"node": "a", "points": [%]}',
)
HISTORY = ('{"node": "gps", "type": "a", "from": %, "to": %, "limit": %}', '{"node": %, "type": %}')
FILE = ('{"name": %}', '{"name": "f", "bytes": %}', '{"id": %}')
FORMS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("app.a.b", "app.a.b.c", "app.a.%zz", "app.a.b.c.d", "app.%.x"), ONE),
    **dict.fromkeys(("app.a", "app.%", "app." + "n" * 900), SEVERAL),
    **dict.fromkeys(("agent.event.armed", "agent.event.%", "agent.event.a.b"), EVENT),
    **dict.fromkeys(("agent.get", "agent.get.gps", "agent.get.gps.a.x", "agent.get.%zz"), GET),
    **dict.fromkeys(("agent.get.a.b.c.d", "agent.tree", "agent.status"), ()),
    **dict.fromkeys(("agent.set", "agent.set.gps", "agent.set.%zz"), POINTS),
    **dict.fromkeys((f"agent.node.{what}" for what in ("create", "mirror", "move", "x")), NODES),
    **dict.fromkeys(("agent.node.delete", "agent.node.undelete"), NODES),
    **dict.fromkeys(("agent.history", "agent.history.gps", "agent.history.%zz"), HISTORY),
    **dict.fromkeys((f"agent.artifact.{what}" for what in ("get", "done", "put", "end")), FILE),
    **dict.fromkeys((f"agent.artifact.{what}" for what in ("upload", "cancel")), FILE),
    **dict.fromkeys((f"agent.artifact.{what}" for what in ("list", "x", "read")), ()),
    f"agent.artifact.write.{DIGEST}.0": (),
}
OFFSETS = ("-1", "1e9", "x", "²", "٣", "9" * 20, "9" * 400, "0x10", "1.5", "%")


async def answered(it: Bench, subject: str, payload: bytes) -> str:
    """Ask, and return the code of the refusal, "" where it was none; fail where no answer is one."""
    asked = subject, payload[:200]
    try:
        message = await it.client.request(subject, payload, timeout=ANSWER_S_MAX)
    except TimeoutError:
        pytest.fail(f"no answer to {asked}")
    said: Any = json.loads(message.data)
    assert isinstance(said, dict), asked
    if (error := said.get("error")) is None:
        return ""
    assert error["code"] in set(Code) - {Code.INTERNAL}, (asked, error)
    assert error["message"], asked
    return str(error["code"])


async def all_answered(it: Bench, asked: list[tuple[str, bytes]]) -> set[str]:
    """Ask all of it, some at a time, and see that nothing of it has ended or disturbed the agent."""
    codes: set[str] = set()
    for start in range(0, len(asked), 100):
        some = asked[start : start + 100]
        codes |= set(await asyncio.gather(*(answered(it, *question) for question in some)))
    assert await it.ask("app.good.reading", "1.5") == {"kept": 1}
    status = await it.until(lambda status: True)
    assert Code.INTERNAL not in status["counters"]["refused"]
    return codes


@settings(
    max_examples=4,
    deadline=None,
    phases=[Phase.generate],  # a failure names its question, and the agent takes a while to start
    suppress_health_check=list(HealthCheck),
)
@given(seed=st.integers(0, 1 << 32))
async def test_every_request_is_answered(
    tmp_path_factory: pytest.TempPathFactory, nats_server: NatsServer, seed: int
) -> None:
    async with bench(tmp_path_factory.mktemp("hostile"), nats_server) as it:
        await all_answered(it, Hostile(seed).questions(FORMS, 500))


async def test_every_token_in_every_place_is_answered(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with bench(tmp_path, nats_server, extra="[health]\ninterval_s = 0.1\n") as it:
        forms = (
            *("{}", '{{"value": {}}}', '{{"value": 1, "time": {}}}', '{{"soc": {}, "t": 1}}'),
            *('{{"soc": {0}, "soc": {0}}}', '{{"value": {}, "dtype": "json"}}', '{{"data": {}}}'),
            '{{"node": "gps", "points": [{{"type": "rate", "value": {}}}]}}',
            *('{{"node": "gps", "type": "a", "limit": {}}}', '{{"name": "f", "bytes": {}}}'),
        )
        payloads = [form.format(token).encode() for form in forms for token in TOKENS]
        subjects = ("app.a.b", "app.a", "agent.event.x", "agent.set", "agent.history", "agent.get")
        asked = [(subject, each) for each in payloads for subject in subjects]
        asked += [("agent.artifact.put", each) for each in payloads]
        codes = await all_answered(it, asked)
        assert {"bad_json", "bad_value", "bad_field", "bad_time", "too_large"} <= codes
        # A look learns of a code, the next tells how often it came since.
        for payload in ("NaN", "1e999"):
            await _until_shown(it, "app.a.b", payload)


async def _until_shown(it: Bench, subject: str, payload: str) -> None:
    """Publish what is refused until the agent's conditions say so, by its code."""
    async with asyncio.timeout(ANSWER_S_MAX):
        while True:
            code = (await it.ask(subject, payload))["error"]["code"]
            status = await it.until(lambda status: True)
            shown = {(each["code"], each["about"]) for each in status["conditions"]}
            if ("publishers-refused", code) in shown:
                return
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("what", ["read", "write"])
async def test_an_odd_place_in_a_file_is_answered(
    tmp_path: Path, nats_server: NatsServer, what: str
) -> None:
    async with bench(tmp_path, nats_server) as it:
        number = (await it.ask("agent.artifact.put", '{"name": "f", "bytes": 5}'))["id"]
        named = DIGEST if what == "read" else number
        subjects = [f"agent.artifact.{what}.{named}.{offset}" for offset in OFFSETS]
        codes = await all_answered(it, [(subject, b"x") for subject in subjects])
        assert codes == {"bad_subject"}


async def test_numbers_reach_the_stream_as_they_were_said(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    said = {
        "9007199254740993": 9007199254740993,
        "18446744073709551615": 2**64 - 1,
        "-9223372036854775808": -(2**63),
        "0.12345678901234567891": 0.12345678901234568,
        "-0": -0.0,
        "true": 1.0,
    }
    async with bench(tmp_path, nats_server) as it:
        for text in said:
            assert await it.ask("app.one.by", text) == {"kept": 1}
        several = ", ".join(f'"t{n}": {text}' for n, text in enumerate(said))
        assert await it.ask("app.all", f"{{{several}, 'time': 5}}".replace("'", '"')) == {
            "kept": len(said)
        }
        assert await it.ask("app.all", '{"soc": 81.2, "gone": 1e999}') == {
            "error": {
                "code": "bad_value",
                "message": "a number out of range: a float64 goes to 1.8e308. Write it in quotes, as text",
            }
        }
        await it.drained()
        points = await points_of(it.client, "OUT_bulk")
        for node in ("one", "all"):
            found = [point.value for point in points if point.node == node]
            assert list(map(repr, found)) == list(map(repr, said.values()))
        assert {point.time for point in points if point.node == "all"} == {5}


async def test_the_python_client_says_no_other_number_either(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with bench(tmp_path, nats_server), connect(nats_server.url, wait_s=60) as agent:
        for data in ({"battery": float("nan")}, [float("inf")], object(), 2**64, "\ud800"):
            with pytest.raises(RefusedError) as refused:
                await agent.event("armed", data=data)
            assert refused.value.code in {"bad_value", "bad_json"}

        async def odd(_: dict[str, Any]) -> Any:
            return {"battery": float("nan")}

        await agent.on_command("odd", odd)
        await agent.nats.flush()
        message = await agent.nats.request("cmd.odd", b"{}", timeout=ANSWER_S_MAX)
        assert "error" in json.loads(message.data)


async def test_a_fault_of_the_agent_is_answered_too(
    tmp_path: Path, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> Any:
        raise KeyError("unforeseen")

    async with bench(tmp_path, nats_server) as it:
        with monkeypatch.context() as broken:
            broken.setattr(Intake, "parse", fail)
            broken.setattr(config_service, "find", fail)
            broken.setattr(history_service, "read_request", fail)
            broken.setattr(Artifacts, "status", fail)
            for subject in ("app.a.b", "agent.get", "agent.history", "agent.artifact.list"):
                error = (await it.ask(subject, "1"))["error"]
                assert error["code"] == Code.INTERNAL, subject
            row = Bundle("0" * 32, 0, 1, "0" * 32, "1" * 32, [("app.a.b", b"1", "")])
            broken.setattr(ReplayBook, "kept", fail)
            for subject, asked in ((KEPT, KeptQuestion("0" * 32)), (PUT, row)):
                payload = msgspec.msgpack.encode(asked)
                message = await it.client.request(subject, payload, timeout=5)
                assert json.loads(message.data)["error"]["code"] == Code.INTERNAL, subject
        assert await it.ask("app.a.b", "1") == {"kept": 1}
        status = await it.until(lambda status: True)
        assert status["counters"]["refused"] == {Code.INTERNAL: 1}

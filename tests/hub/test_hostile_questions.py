"""Whatever an operator, a person or a vehicle asks the hub: it is answered in words, and the hub lives on."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from backhaul_codec.protocol import blobs
from backhaul_codec.protocol.enrolment import EnrolmentError, read_request, read_token
from backhaul_codec.protocol.identity import IdentityError, decode_identity
from backhaul_codec.protocol.rotation import read_wish
from backhaul_hub.links.reset_service import says_too_much
from backhaul_hub.nats.replies import respond_to
from backhaul_hub.shadow.document import version_of
from tests.hub.clock_wire import serving
from tests.hub.people_hub import MINE, WAIT_S, People
from tests.support.hostile_json import TOKENS, Hostile

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

POINTS = '"points": [{"type": "a", "key": %, "value": %, "dtype": %}]'
FORMS: dict[str, tuple[str, ...]] = {
    "get": ('{"device": "VID-001", "paths": [%]}', '{"device": %, "deleted": %}'),
    "tree": (),
    "devices": ('{"after": %}',),
    "conflicts": ('{"device": %, "settled": %}',),
    "revert": ('{"id": %, "who": %}', '{"id": 1, "accept": %}'),
    "commands": ('{"device": "VID-001", "id": %, "limit": %}', '{"unfinished": %}'),
    "set": (f'{{"device": "VID-001", "node": "gps", {POINTS}}}', '{"device": %, "node": %}'),
}
OPERATORS = FORMS | {
    "node": ('{"do": "create", "address": %, "type": %}', '{"do": %, "address": %, "under": %}'),
}
PEOPLES = FORMS | {
    "state": ('{"device": %, "after": %}',),
    "events": ('{"since_ns": %, "limit": %}', '{"since_ns": 1, "device": "VID-001", "kind": %}'),
    "shadow": ('{"device": "VID-001", "part": %}',),
    "desire": ('{"device": "VID-001", "points": [{"node": "a", "type": "b", "value": %}]}',),
    "command": ('{"device": "VID-001", "name": "a", "params": %, "deadline_s": %}',),
    "no-such-service": (),
}


async def answered(ask: Callable[[str, bytes], Awaitable[Any]], service: str, body: bytes) -> None:
    said = json.loads((await ask(service, body)).data)
    assert isinstance(said, dict)
    error = said.get("error")
    if isinstance(error, dict):  # else a command is told of, which has failed
        assert error["message"], (service, body[:200])
        assert "fault of the hub" not in error["message"], (service, body[:200])


async def all_answered(
    ask: Callable[[str, bytes], Awaitable[Any]], asked: list[tuple[str, bytes]], at_once: int
) -> None:
    room = asyncio.Semaphore(at_once)

    async def one(service: str, body: bytes) -> None:
        async with room:
            try:
                await answered(ask, service, body)
            except TimeoutError:
                pytest.fail(f"no answer to {service} {body[:200]!r}")

    await asyncio.gather(*(one(*each) for each in asked))


@pytest.mark.nats
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("seed", range(2))
async def test_every_question_of_an_operator_is_answered(people: People, seed: int) -> None:
    async def ask(service: str, body: bytes) -> Any:
        return await people.operator.request(f"hub.{service}", body, timeout=WAIT_S)

    await all_answered(ask, Hostile(seed).questions(OPERATORS, 300), 32)
    assert (await people.do("get", device=MINE))["device"] == MINE


@pytest.mark.nats
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("seed", range(2))
async def test_every_question_of_a_person_is_answered(people: People, seed: int) -> None:
    carl = people.carl

    async def ask(service: str, body: bytes) -> Any:
        return await carl.client.request(carl.person.ask(service), body, timeout=WAIT_S)

    await all_answered(ask, Hostile(seed).questions(PEOPLES, 200), 4)
    assert "points" in await carl.ask("get", device=MINE)


@pytest.mark.nats
@pytest.mark.asyncio(loop_scope="module")
async def test_every_command_and_every_wish_is_taken_or_refused(people: People) -> None:
    """Published, not asked: so it is the record that answers, under the id of who sent it."""
    readable = [token for token in TOKENS if _is_json_to_some(token)]
    assert "1e999" in readable
    for number, token in enumerate(readable):
        body = f'{{"id": "hostile-{number}", "params": {token}, "deadline_s": 5}}'
        await people.operator.publish(f"fleet.prod.veh.{MINE}.cmd.a", body.encode())
    for payload in (Hostile(9).payload('{"a.b": %}', '{"a.b:int64": %}') for _ in range(50)):
        await people.operator.publish(f"$KV.TWIN_SHADOW.fleet.prod.veh.{MINE}.desired", payload)
    wanted = {f"hostile-{number}" for number in range(len(readable))}
    async with asyncio.timeout(WAIT_S):
        while True:
            found = await people.do("commands", device=MINE, limit=1000)
            known = {each["id"]: each for each in found["commands"]}
            if wanted <= known.keys():
                break
            await asyncio.sleep(0.05)
    for number, token in enumerate(readable):
        told = known[f"hostile-{number}"]
        if token in ("NaN", "1e999", "9" * 310):
            assert (told["state"], told["params"]) == ("failed", None)
        elif told["state"] != "failed":
            assert told["params"] == json.loads(token)


def _is_json_to_some(token: str) -> bool:
    try:
        return json.loads(f"[{token}]") is not None
    except (ValueError, RecursionError):
        return False


@given(st.integers(0, 1 << 32))
@settings(max_examples=40)
async def test_a_vehicles_questions_are_answered_or_passed_over(seed: int) -> None:
    wire, clock, service = await serving()
    hostile = Hostile(seed)
    forms = ('{"t1": %}', '{"t1": 1, "epoch": %, "lanes": {"bulk": %}}', '{"t1": 1, "epochs": [%]}')
    for _ in range(20):
        clock.s += 3600.0
        body = hostile.payload(*forms)
        before = service.refused, len(wire.sent)
        await wire.question("VID-001", body)
        assert (service.refused, len(wire.sent)) != before, body
    clock.s += 3600.0
    await wire.question("VID-001", b'{"t1": 7}')
    assert wire.sent[-1][1]["t1"] == 7


@given(st.integers(0, 1 << 32), st.binary())
@settings(max_examples=60)
def test_documents_of_others_are_read_or_refused_in_words(seed: int, data: bytes) -> None:
    hostile = Hostile(seed)
    forms = ('{"token": %, "public_key": %, "proof": %}', '{"id": %, "jwt": %}', '{"version": %}')
    readers: tuple[tuple[Callable[[bytes], object], type[Exception]], ...] = (
        (lambda body: read_request("enrol.x", body), EnrolmentError),
        (lambda body: read_token("backhaul-" + body.decode("latin-1")), EnrolmentError),
        (decode_identity, IdentityError),
        (read_wish, ValueError),
        (says_too_much, AssertionError),
        (version_of, AssertionError),
    )
    for body in (data, *(hostile.payload(*forms) for _ in range(20))):
        for read, refusal in readers:
            try:
                read(body)
            except refusal as error:
                assert str(error)  # noqa: PT017
        try:
            blobs.decode_question(body)
        except Exception as error:  # noqa: BLE001 - as the service passes it over
            assert isinstance(error, blobs.NOT_READ)  # noqa: PT017


async def test_a_fault_of_the_hub_is_answered_and_logged() -> None:
    said: list[bytes] = []

    async def respond(body: bytes) -> None:
        said.append(body)

    async def fail(_: object) -> Any:
        raise KeyError("unforeseen")

    async def cannot_be_written(_: object) -> Any:
        return {"what": object()}

    message: Any = SimpleNamespace(subject="hub.get", data=b"{}", respond=respond)
    client: Any = SimpleNamespace(max_payload=1 << 20)
    with capture_logs() as logged:
        for answer in (fail, cannot_be_written):
            await respond_to(client, message, answer)
    assert [json.loads(each)["error"]["message"] for each in said] == [
        "a fault of the hub, not of this question"
    ] * 2
    assert [type(each["exc_info"]) for each in logged] == [KeyError, TypeError]

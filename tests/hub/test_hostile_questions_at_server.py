"""Hostile questions to a hub at a real server: each is answered in words, and the hub lives on."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.hub.people_hub import MINE, WAIT_S, People
from tests.support.hostile_json import TOKENS, Hostile

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = pytest.mark.nats

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


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("seed", range(2))
async def test_every_question_of_an_operator_is_answered(people: People, seed: int) -> None:
    async def ask(service: str, body: bytes) -> Any:
        return await people.operator.request(f"hub.{service}", body, timeout=WAIT_S)

    await all_answered(ask, Hostile(seed).questions(OPERATORS, 300), 32)
    assert (await people.do("get", device=MINE))["device"] == MINE


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("seed", range(2))
async def test_every_question_of_a_person_is_answered(people: People, seed: int) -> None:
    carl = people.carl

    async def ask(service: str, body: bytes) -> Any:
        return await carl.client.request(carl.person.ask(service), body, timeout=WAIT_S)

    await all_answered(ask, Hostile(seed).questions(PEOPLES, 200), 4)
    assert "points" in await carl.ask("get", device=MINE)


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

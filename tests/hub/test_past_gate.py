"""Questions about the past on their way from the control plane to the server of history, over a real server."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from backhaul_codec.protocol.history import SUBJECT, PastQuestion
from backhaul_codec.strict.json import JsonError
from backhaul_hub.errors import HubError
from backhaul_hub.people.history import AT_ONCE, HistoryGate
from tests.support.server_alone import server_alone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nats.aio.client import Client

pytestmark = pytest.mark.nats
QUESTION = PastQuestion("VID-001", "gps", "speed", 0, 1)


class Hub:
    """A hub's server with a connection of the control plane's and one of the server of history."""

    def __init__(self, control: Client, past: Client) -> None:
        self.control = control
        self._past = past
        self.asked: list[Any] = []

    async def serve(self, answer: bytes | None, *, lost: int = 0) -> None:
        """Answer every question alike, but the first ones that are `lost`; None: not at all."""

        async def hear(message: Any) -> None:
            self.asked.append(json.loads(message.data or b"null"))
            if answer is not None and len(self.asked) > lost:
                await message.respond(answer)

        await self._past.subscribe(SUBJECT, cb=hear)
        await self._past.flush()


@pytest_asyncio.fixture
async def hub(tmp_path: Any) -> AsyncIterator[Hub]:
    async with AsyncExitStack() as stack:
        rig = await stack.enter_async_context(server_alone(tmp_path / "hub"))
        control = await stack.enter_async_context(rig.connection())
        yield Hub(control, await stack.enter_async_context(rig.connection("history")))


async def test_where_nobody_serves_history_the_refusal_names_the_command(hub: Hub) -> None:
    gate = HistoryGate(hub.control)
    with pytest.raises(HubError, match="nobody serves history") as refused:
        await gate.ask(QUESTION)
    assert "backhaul-spark serve-history" in refused.value.hint
    assert "NoResponders" in (await gate.look())[0]
    await hub.serve(b'{"t_us": [1]}')
    assert json.loads(bytes(await gate.ask(QUESTION))) == {"t_us": [1]}
    assert (await gate.look())[0] == ""
    assert hub.asked[0]["points_max"] == 1000
    assert hub.asked[1] is None, "whoever looks asks nothing"


async def test_a_refusal_is_passed_on_in_its_words_and_nonsense_is_none(hub: Hub) -> None:
    gate = HistoryGate(hub.control)
    await hub.serve(b'{"error": {"message": "too long", "hint": "ask for less"}}')
    with pytest.raises(HubError, match="too long") as refused:
        await gate.ask(QUESTION)
    assert refused.value.hint == "ask for less"


@pytest.mark.parametrize("answer", [b"[]", b"no JSON", b'{"error": {}}'])
async def test_what_is_no_answer_is_refused(hub: Hub, answer: bytes) -> None:
    await hub.serve(answer)
    with pytest.raises(JsonError):
        await HistoryGate(hub.control).ask(QUESTION)


async def test_a_server_that_stands_still_holds_up_so_many_questions_alone(hub: Hub) -> None:
    await hub.serve(None)
    gate = HistoryGate(hub.control, wait_s=60.0)
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(gate.ask(QUESTION)) for _ in range(AT_ONCE)]
        async with asyncio.timeout(60):
            while len(hub.asked) < AT_ONCE:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        with pytest.raises(HubError, match="are under way"):
            await gate.ask(QUESTION)
        for each in waiting:
            each.cancel()
    with pytest.raises(HubError, match="no answer from the server of history"):
        await HistoryGate(hub.control, wait_s=0.05).ask(QUESTION)


async def test_a_question_that_was_lost_is_asked_again(hub: Hub) -> None:
    await hub.serve(b'{"t_us": [1]}', lost=2)
    gate = HistoryGate(hub.control, wait_s=60.0, pauses_s=(0.01, 0.02, 0.04))
    assert json.loads(bytes(await gate.ask(QUESTION))) == {"t_us": [1]}
    assert len(hub.asked) >= 3

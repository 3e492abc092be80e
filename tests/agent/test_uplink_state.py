"""Whether the link is up: read from the leaf's statistics, told once for each coming up."""

from __future__ import annotations

import asyncio

import pytest
from nats.errors import NoRespondersError

from backhaul_agent.leaf.link_state import UplinkState, link_in

ANSWER = b'{"server":{},"data":{"account_statz":[{"acc":"VEH","leafnodes":%d}]}}'


@pytest.mark.parametrize(
    ("answer", "up"),
    [
        (ANSWER % 1, True),
        (ANSWER % 0, False),
        (b'{"data":{"account_statz":[]}}', None),
        (b'{"error":{"code":500}}', None),
        (b"no json", None),
        (b'{"data":{"account_statz":[{"leafnodes":"many"}]}}', None),
    ],
)
def test_statistics_say_whether_there_is_a_link(answer: bytes, up: bool | None) -> None:
    assert link_in(answer) is up


def test_everybody_is_told_each_time_the_link_comes_up_and_only_then() -> None:
    state, told = UplinkState(), []
    state.on_up.append(lambda: told.append(state.up))
    for seen in (None, False, True, True, False, None, True):
        state.note(seen)
    assert told == [True, True]
    assert state.ups == 2


async def test_a_leaf_that_does_not_answer_leaves_it_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("backhaul_agent.leaf.link_state.LOOK_S", 0.001)
    state, answers = UplinkState(), [ANSWER % 1, None, ANSWER % 1]

    async def request(_: str, __: bytes) -> bytes:
        if not answers:
            done.set()
            await asyncio.Event().wait()
        answer = answers.pop(0)
        if answer is None:
            raise NoRespondersError
        return answer

    done = asyncio.Event()
    task = asyncio.create_task(state.run(request))
    async with asyncio.timeout(60):
        await state.wait_up()
        await done.wait()
    assert (state.up, state.ups) == (True, 2), "unknown in between counts as gone"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert state.up is None
    waiting = asyncio.create_task(state.wait_up())
    await asyncio.sleep(0)
    assert not waiting.done()
    state.note(up=True)
    await waiting

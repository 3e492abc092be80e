"""A batch that several tasks of a program fill: all of it is waited for, and counted once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import pytest

from backhaul_agent.client.batch import BATCHES_IN_FLIGHT, Batch
from backhaul_agent.errors import Code, RefusedError
from backhaul_codec import Point
from tests.support.waiting import until

if TYPE_CHECKING:
    from backhaul_agent.client import Agent


class Answers:
    """Stands in for the agent: each frame is answered when the test says so, by its first value."""

    def __init__(self) -> None:
        self.asked: dict[float, asyncio.Future[int]] = {}

    async def publish_frame(self, _: str, points: list[Point], *, own_stamps: bool = False) -> int:
        assert not own_stamps
        value = points[0].value
        assert isinstance(value, float)
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.asked[value] = answer
        return await answer


def point(number: int) -> Point:
    return Point("n", "t", number, float(number))


async def full(batch: Batch, answers: Answers) -> asyncio.Task[None]:
    """Have one task wait because too many frames are unanswered."""
    for number in range(BATCHES_IN_FLIGHT - 1):
        await batch.put(point(number))
    waiting = asyncio.create_task(batch.put(point(BATCHES_IN_FLIGHT - 1)))
    await until(lambda: len(answers.asked) == BATCHES_IN_FLIGHT)
    return waiting


@pytest.mark.parametrize("refused", [False, True])
@pytest.mark.parametrize("waits", [False, True])
async def test_what_another_task_adds_while_one_waits_counts_too(
    waits: bool, refused: bool
) -> None:
    answers = Answers()
    batch = Batch(cast("Agent", answers), "n", 1)
    tasks = [await full(batch, answers)]
    if waits:
        tasks.append(asyncio.create_task(batch.put(point(100))))
        await asyncio.sleep(0)
    else:
        batch.add("t", 100.0, time=100)
    answers.asked[0.0].set_result(1)
    await until(lambda: 100.0 in answers.asked)
    for number in range(1, BATCHES_IN_FLIGHT):
        answers.asked[float(number)].set_result(1)
    await asyncio.gather(*tasks)
    if refused:
        answers.asked[100.0].set_exception(RefusedError(Code.STORAGE, "no room"))
        with pytest.raises(RefusedError):
            await batch.__aexit__(None, None, None)
    else:
        answers.asked[100.0].set_result(1)
        await batch.__aexit__(None, None, None)
    assert batch.kept == BATCHES_IN_FLIGHT + (not refused)

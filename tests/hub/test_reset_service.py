"""Resets passed on: an answer that would have a leaf pass over messages is never told."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_hub.links.reset_service import RESETS_MAX, ResetService, says_too_much
from backhaul_runtime.clock import SystemClock
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

DURABLE = "VID-001-" + "0" * 24
QUESTION = f"hubapi.CONSUMER.RESET.DOWN_00.{DURABLE}"


def said(reset_seq: int, delivered: int) -> bytes:
    return json.dumps({"reset_seq": reset_seq, "delivered": {"stream_seq": delivered}}).encode()


class Hub:
    """Stands for the hub's server, which says too much one time in hundreds: answers as it is told."""

    def __init__(self, *answers: bytes) -> None:
        self.asked = 0
        self.told: list[bytes] = []
        self.reset: list[str] = []
        self._answers = answers
        self._ask: Callable[[Any], Awaitable[None]] | None = None

    async def subscribe(self, _: str, cb: Callable[[Any], Awaitable[None]], **__: object) -> None:
        self._ask = cb

    async def request(self, *_: object, **__: object) -> Any:
        answer = self._answers[min(self.asked, len(self._answers) - 1)]
        self.asked += 1
        return SimpleNamespace(data=answer)

    async def publish(self, _: str, data: bytes) -> None:
        self.told.append(data)

    async def ask(self) -> None:
        """Have a leaf ask once, and wait until that is over."""
        service = ResetService(self, SystemClock(), on_reset=self.reset.append)  # type: ignore[arg-type]
        await service.listen(self)  # type: ignore[arg-type]
        assert self._ask is not None
        await self._ask(SimpleNamespace(subject=QUESTION, reply="_R_.x", data=b""))
        await until(lambda: not service._waiting)


@pytest.mark.parametrize(
    ("answer", "too_much"),
    [
        (said(391, 390), False),
        (said(391, 391), True),
        (said(391, 560), True),
        (said(1, 0), False),
        (b'{"error": {"code": 404, "err_code": 10014}}', False),
        (b"garbage", False),
    ],
    ids=["right", "one", "many", "empty", "refused", "garbage"],
)
def test_an_answer_says_too_much_where_more_was_delivered_than_the_reset_left(
    answer: bytes, too_much: bool
) -> None:
    assert says_too_much(answer) is too_much


async def test_a_durable_is_reset_again_until_the_answer_is_right() -> None:
    hub = Hub(said(391, 560), said(391, 400), said(391, 390))
    await hub.ask()
    assert hub.told == [said(391, 390)]
    assert hub.reset == ["VID-001"]
    assert hub.asked == 3


async def test_an_answer_that_stays_wrong_is_told_to_nobody() -> None:
    hub = Hub(said(391, 560))
    await hub.ask()
    assert hub.told == []
    assert hub.asked == RESETS_MAX

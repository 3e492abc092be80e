"""Pushing accounts on request: whatever comes of it, who asked hears of it."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from nats.errors import TimeoutError as NatsTimeoutError

from backhaul_hub.access import service as account_service
from backhaul_hub.access.service import SUBJECT, push_on_request
from backhaul_hub.errors import HubError


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (None, ""),
        (HubError("2 of 3 servers answer", hint="wait"), "2 of 3 servers answer"),
        (NatsTimeoutError(), "TimeoutError"),
        (ValueError("what no server says"), "its log has the traceback"),
    ],
)
async def test_who_asks_is_answered(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None, words: str
) -> None:
    heard: dict[str, Any] = {}
    answers: list[bytes] = []

    class System:
        async def subscribe(self, subject: str, cb: Any) -> None:
            heard[subject] = cb

    class Accounts:
        async def push(self, _: Any) -> None:
            if error is not None:
                raise error

    async def nothing(_: Any) -> None:
        pass

    async def respond(body: bytes) -> None:
        answers.append(body)

    monkeypatch.setattr(account_service, "heard", nothing)
    accounts: Any = Accounts()
    system: Any = System()
    await push_on_request(accounts, system)
    await heard[SUBJECT](SimpleNamespace(respond=respond))
    (answer,) = map(json.loads, answers)
    assert ("error" in answer) == (error is not None)
    assert words in str(answer)

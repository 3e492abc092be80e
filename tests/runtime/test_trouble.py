"""What is logged of a failure that is waited out, and how long each pause is."""

from __future__ import annotations

import asyncio

import pytest
import structlog
from structlog.testing import capture_logs

from backhaul_runtime.trouble import Trouble

log = structlog.get_logger("test")


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return slept


async def attempts(trouble: Trouble, *outcomes: Exception | None) -> list[dict[str, object]]:
    with capture_logs() as logged:
        for outcome in outcomes:
            async with trouble:
                if outcome is not None:
                    raise outcome
    return [dict(each) for each in logged]


async def test_a_failure_is_logged_once_until_it_changes_and_once_when_it_is_over(
    pauses: list[float],
) -> None:
    trouble = Trouble(log, "not_written", OSError, wait_s=2.0, lane="live")
    one, other = OSError("full"), OSError("gone")
    logged = await attempts(trouble, None, one, one, other, None, None, one)
    of = {"lane": "live"}
    warning = {"event": "not_written", "log_level": "warning"} | of
    assert logged == [
        warning | {"error": "full"},
        warning | {"error": "gone"},
        {"event": "recovered", "event_before": "not_written", "log_level": "info"} | of,
        warning | {"error": "full"},
    ]
    assert pauses == [2.0] * 4
    assert trouble.now == "full"


async def test_pauses_grow_up_to_a_bound_and_begin_anew_after_a_success(
    pauses: list[float],
) -> None:
    trouble = Trouble(log, "away", OSError, over="back", wait_s=0.5, wait_s_max=1.5)
    bad = OSError()
    logged = await attempts(trouble, bad, bad, bad, None, bad)
    assert pauses == [0.5, 1.0, 1.5, 0.5]
    assert [each["event"] for each in logged] == ["away", "back", "away"]
    assert logged[0]["error"] == "OSError()", "an error without a text has its name"


async def test_an_error_of_another_kind_and_a_cancellation_go_on_their_way(
    pauses: list[float],
) -> None:
    trouble = Trouble(log, "away", OSError)
    for error in (ValueError("bad"), asyncio.CancelledError()):
        with pytest.raises(type(error)):
            async with trouble:
                raise error
    assert (trouble.now, pauses) == ("", [])

"""What agent and control plane write to standard error: each line JSON, each fault with its traceback."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import logging
import sys
from typing import TYPE_CHECKING, Any

import pytest
import structlog

import backhaul_agent.logs
from backhaul_hub.cli._printing import log_to_stderr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOKEN = "0123456789abcdef01234567"


@pytest.fixture(params=[log_to_stderr, lambda: backhaul_agent.logs.configure("info")])
def lines(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """Log as the hub does, then as the agent does; return what was written."""
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    before, handlers = structlog.get_config(), logging.getLogger().handlers[:]
    request.param()
    request.param()  # a second time repeats no line
    try:
        yield lambda: [json.loads(line) for line in written.getvalue().splitlines()]
    finally:
        structlog.configure(**before)
        logging.getLogger().handlers[:] = handlers


def fail() -> None:
    raise ValueError(f"consumer VID-001-{TOKEN} is gone\nsecond line")


def test_an_exception_is_one_line_with_its_traceback_and_without_a_token(
    lines: Callable[[], list[dict[str, Any]]],
) -> None:
    try:
        fail()
    except ValueError:
        structlog.get_logger().exception("question_failed", subject=f"dlv.VID-001.{TOKEN}")
    (line,) = lines()
    assert line["level"] == "error"
    assert "in fail\n" in line["exception"]
    assert "ValueError: consumer VID-001-0123**** is gone" in line["exception"]
    assert TOKEN not in str(line)


def test_what_libraries_log_is_a_line_like_ours(lines: Callable[[], list[dict[str, Any]]]) -> None:
    logging.getLogger("nats.aio.client").error("nats: %s\nforged", f"{TOKEN} is gone")
    logging.getLogger("asyncio").debug("nothing to see")
    (line,) = lines()
    assert (line["level"], line["logger"]) == ("error", "nats.aio.client")
    assert line["said"] == "nats: 0123**** is gone\nforged"


def test_a_task_whose_failure_nobody_hears_is_logged_with_its_traceback(
    lines: Callable[[], list[dict[str, Any]]],
) -> None:
    async def lose_one() -> None:
        async def failing() -> None:
            fail()

        task = asyncio.create_task(failing())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        del task
        gc.collect()

    asyncio.run(lose_one())
    assert any("in fail\n" in line.get("exception", "") for line in lines())


def test_a_fault_that_repeats_does_not_fill_the_disk(
    lines: Callable[[], list[dict[str, Any]]],
) -> None:
    for _ in range(10_000):
        structlog.get_logger().warning("not_answered", subject="hub.get")
    assert 10 < len(lines()) < 30

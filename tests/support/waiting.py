"""Waiting for something to come true, with a deadline."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOK_S = 0.01


async def until(
    condition: Callable[[], object], what: str = "", *, deadline_s: float = 120.0
) -> None:
    """Look again and again until `condition()`, or what it awaits, holds; fail the test at the deadline.

    Looks that take long are made less often: they use half of the time at most.
    """
    loop = asyncio.get_running_loop()
    end_s = loop.time() + deadline_s
    while True:
        began_s = loop.time()
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return
        now_s = loop.time()
        if now_s > end_s:
            pytest.fail(f"never came true: {what or condition}")
        await asyncio.sleep(max(_LOOK_S, now_s - began_s))

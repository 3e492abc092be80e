"""Waiting for something to come true, with a deadline."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOK_S = 0.01


async def until(
    condition: Callable[[], bool], what: str = "", *, deadline_s: float = 120.0
) -> None:
    """Look again and again until `condition()` holds; fail the test at the deadline."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + deadline_s
    while not condition():
        if loop.time() > end_s:
            pytest.fail(f"never came true: {what or condition}")
        await asyncio.sleep(_LOOK_S)

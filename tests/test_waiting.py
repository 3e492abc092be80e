"""Tests wait for conditions through one helper: of a value, of an awaitable, and never for ever."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.waiting import until


@pytest.mark.parametrize("awaited", [False, True])
async def test_a_wait_ends_once_its_condition_holds_and_no_sooner(awaited: bool) -> None:
    looks = iter([0, "", 1, 1])

    async def later() -> object:
        await asyncio.sleep(0)
        return next(looks)

    await until(later if awaited else lambda: next(looks))
    assert list(looks) == [1]


@pytest.mark.parametrize("awaited", [False, True])
async def test_a_condition_that_never_holds_fails_the_test_by_its_name(awaited: bool) -> None:
    async def never() -> bool:
        return False

    with pytest.raises(pytest.fail.Exception, match="never came true: rain"):
        await until(never if awaited else lambda: False, "rain", deadline_s=0.02)

"""What the control plane takes out of Python's search for garbage, and when."""

from __future__ import annotations

import asyncio
import gc

import pytest

from backhaul_hub.control.heap import Heap


async def test_what_is_there_is_taken_out_at_the_start_and_ever_more_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done, waited, thresholds = list[str](), list[float](), list[tuple[int, ...]]()
    objects = 100
    monkeypatch.setattr(gc, "set_threshold", lambda *each: thresholds.append(each))
    monkeypatch.setattr(gc, "get_freeze_count", lambda: objects)
    monkeypatch.setattr(gc, "collect", lambda: done.append("collect"))
    monkeypatch.setattr(gc, "freeze", lambda: done.append("freeze"))

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 14:
            raise asyncio.CancelledError

    heap = Heap(sleep)
    await heap.start()
    assert done == ["collect", "freeze"]
    assert thresholds == [(20_000, 20, 20)]
    objects = 10_000_000
    [work] = heap.tasks()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert waited == [*(60.0 * 2**at for at in range(11)), *[86_400.0] * 3]
    assert done[2:] == ["collect", "freeze"] * 13
    assert thresholds[1:] == [(500_000, 20, 20)] * 13, (
        "garbage in cycles is a twentieth of all at most"
    )

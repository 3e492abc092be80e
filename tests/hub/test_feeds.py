"""When the source of an UP stream is set up again: each shard hears its relay every second, or is not fed."""

from __future__ import annotations

from typing import Any

import pytest

from backhaul_hub.links.feeds import FeedWatch, relay_source, unfed

S = 1_000_000_000


def info(active: int, **extra: object) -> dict[str, Any]:
    return {"sources": [relay_source(0, "secret") | {"active": active, "lag": 0} | extra]}


@pytest.mark.parametrize(
    ("shard", "why"),
    [
        (info(2 * S), ""),
        (info(4 * S), "it has heard nothing of its relay for 4 s"),
        (info(-1), "it never heard its relay"),
        (info(S, error={"description": "stream not found"}), "refused: stream not found"),
        ({"sources": []}, "it does not source its relay"),
        ({}, "it does not source its relay"),
    ],
)
def test_a_shard_is_fed_or_says_why_it_is_not(shard: dict[str, Any], why: str) -> None:
    assert unfed(shard) == why


def test_a_silent_relay_is_looked_for_again_less_and_less_often() -> None:
    watch = FeedWatch()
    kicks = [at_s for at_s in range(200) if watch.due(info(30 * S), at_s)]
    assert kicks == [6, 18, 42, 90, 150]


def test_a_relay_that_was_heard_meanwhile_is_given_time_again() -> None:
    watch = FeedWatch()
    assert [at_s for at_s in range(20) if watch.due(info(30 * S), at_s)] == [6, 18]
    assert watch.due(info(S), 20) == ""
    assert [at_s for at_s in range(21, 30) if watch.due(info(30 * S), at_s)] == [27]

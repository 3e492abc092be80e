"""A read of a cluster's streams is made again while nobody answers, and its error is said in the end."""

from __future__ import annotations

import asyncio

import pytest

from backhaul_hub.errors import HubError
from backhaul_hub.nats.patience import patiently


class Stream:
    """Does not answer at first."""

    def __init__(self, silent: int) -> None:
        self.silent = silent
        self.asked = 0

    async def read(self) -> None:
        self.asked += 1
        if self.asked <= self.silent:
            raise HubError(f"no answer to question {self.asked}")


def test_it_is_read_again_until_somebody_answers() -> None:
    stream = Stream(silent=1)
    asyncio.run(patiently(stream.read, 60.0))
    assert stream.asked == 2


def test_without_patience_the_first_error_is_said() -> None:
    stream = Stream(silent=9)
    with pytest.raises(HubError, match="no answer to question 1"):
        asyncio.run(patiently(stream.read, 0.0))

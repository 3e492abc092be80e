"""Reading what a stream holds: all of it, or it is said that something is missing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js.api import DeliverPolicy

from backhaul_hub.nats.ephemeral_reader import pending


class Server:
    """Has three messages to deliver, delivers two, and then says how things stand."""

    def __init__(self, *, delivered: int, left: int) -> None:
        self.now = SimpleNamespace(
            num_pending=left, delivered=SimpleNamespace(consumer_seq=delivered)
        )
        self.batches = [["one", "two"]]
        self.deleted = False

    def jetstream(self, timeout: float) -> Server:
        return self

    async def add_consumer(self, stream: str, config: object) -> Any:
        return SimpleNamespace(name="reader", num_pending=3)

    async def pull_subscribe_bind(self, name: str, stream: str) -> Server:
        return self

    async def fetch(self, count: int, **_: float) -> list[str]:
        if not self.batches:
            raise NatsTimeoutError
        return self.batches.pop()

    async def consumer_info(self, stream: str, name: str) -> Any:
        return self.now

    async def delete_consumer(self, stream: str, name: str) -> None:
        self.deleted = True


async def read(server: Server) -> list[Any]:
    found: Any = pending(server, "TWIN_STATE", DeliverPolicy.ALL)  # type: ignore[arg-type]
    return [message async for message in found]


async def test_what_has_aged_out_meanwhile_is_not_waited_for() -> None:
    server = Server(delivered=2, left=0)
    assert await read(server) == ["one", "two"]
    assert server.deleted


@pytest.mark.parametrize(
    ("delivered", "left"),
    [pytest.param(2, 1, id="asked over a lost connection"), pytest.param(3, 0, id="lost with it")],
)
async def test_a_part_is_not_taken_for_all(delivered: int, left: int) -> None:
    server = Server(delivered=delivered, left=left)
    with pytest.raises(NatsTimeoutError):
        await read(server)
    assert server.deleted

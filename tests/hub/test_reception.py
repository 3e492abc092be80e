"""Listening to vehicles again, however long the server is away meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from backhaul_hub.errors import HubError
from backhaul_hub.links import reception
from backhaul_hub.links.reception import Reception

if TYPE_CHECKING:
    import pytest
    from nats.aio.client import Client


class Connection:
    """A connection, as far as a reception uses it."""

    is_closed = False

    async def flush(self) -> None:
        pass

    async def close(self) -> None:
        self.is_closed = True


class Server:
    """Lets connect who comes, but for so many times that it is away."""

    def __init__(self) -> None:
        self.away_times = 0
        self.heard_over: list[Connection] = []

    async def connect(self) -> Client:
        if self.away_times:
            self.away_times -= 1
            raise HubError("no server")
        return cast("Client", Connection())

    async def listen(self, client: Client) -> None:
        self.heard_over.append(cast("Connection", client))


async def test_vehicles_are_heard_again_though_the_server_was_away_when_it_was_to_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who had it deaf does not ask for it again once nobody is to be kept out any more."""
    monkeypatch.setattr(reception, "_LOOK_S", 0.0)
    server = Server()
    here = Reception(server.connect)
    await here.open(server.listen)
    try:
        async with here.deaf():
            server.away_times = 2
    except HubError:
        pass  # as the guard against floods takes it
    assert [each.is_closed for each in server.heard_over] == [True, False]
    await here.close()
    assert server.heard_over[1].is_closed

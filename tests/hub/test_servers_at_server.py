"""With real servers: a hub of several servers: their files, and one control plane for all of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from nats.errors import NoRespondersError

from backhaul_hub.control import single_instance as single
from backhaul_hub.control.single_instance import SingleInstance
from backhaul_hub.errors import HubError
from tests.support.rig import patient

if TYPE_CHECKING:
    from tests.support.nats_server import NatsServer

pytestmark = pytest.mark.nats


async def test_a_second_control_plane_is_refused(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(single, "_ASK_S", 60.0)  # who is slow to answer is not gone
    first = await patient.connect(nats_server.url)
    second = await patient.connect(nats_server.url)
    async with first, second:
        await SingleInstance(first, 1, "one").start()
        with pytest.raises(HubError, match="another control plane"):
            await SingleInstance(second, 2, "two").start()


async def test_of_two_that_come_to_see_each_other_the_younger_ends(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unheard(*_: object, **__: object) -> None:
        raise NoRespondersError

    clients = [await patient.connect(nats_server.url) for _ in range(2)]
    async with clients[0], clients[1]:
        elder, younger = (
            SingleInstance(clients[0], 1, "elder"),
            SingleInstance(clients[1], 2, "younger"),
        )
        # As behind a cut between servers: neither hears the other when it starts.
        for client in clients:
            monkeypatch.setattr(client, "request", unheard)
        await asyncio.gather(elder.start(), younger.start())
        watching = [asyncio.create_task(each.watch()) for each in (elder, younger)]
        done, left = await asyncio.wait(watching, timeout=120, return_when=asyncio.FIRST_COMPLETED)
        assert done == {watching[1]}
        assert isinstance(watching[1].exception(), HubError)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

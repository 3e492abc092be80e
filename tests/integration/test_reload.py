"""A hub's server that reads its configuration again while vehicles are connected."""

from __future__ import annotations

from typing import TYPE_CHECKING

import nats
import pytest

from backhaul_agent.config import load
from backhaul_agent.link_config import in_stream_config
from backhaul_hub.jetstream import JetStreamApi
from demo.rig import program, run_to_end
from tests.support.waiting import until

if TYPE_CHECKING:
    from .conftest import World

pytestmark = pytest.mark.nats

# More than the window of 64: the rest comes only if what came is acknowledged.
MESSAGES = 200


async def test_what_the_hub_sends_goes_on_after_another_device_was_added(world: World) -> None:
    vehicle = await world.vehicle("VID-001")
    await vehicle.rig.leaf.start()
    await vehicle.rig.leaf.wait_listening(vehicle.rig.client_port)
    hub_client, leaf_client = await nats.connect(world.hub.url()), await nats.connect(vehicle.url)
    try:
        hub, leaf = JetStreamApi(hub_client), JetStreamApi(leaf_client)
        config = in_stream_config(load(vehicle.rig.agent_toml))
        assert config is not None
        await leaf.request("STREAM.CREATE.IN", config)
        ...
    finally:
        await hub_client.close()
        await leaf_client.close()

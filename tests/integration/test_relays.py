"""The relay before UP: lost, deleted, cut off, and absent at a hub of before. No reading is lost or doubled for it."""

from __future__ import annotations

import json
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_hub.db.devices import read_devices
from backhaul_hub.db.store import Registry
from backhaul_hub.links.sources import lane_source
from backhaul_hub.shards import api_subject
from tests.integration.conditions import until_shown
from tests.integration.hub_api import api
from tests.integration.trickles import Trickle, all_confirmed, trickling, until
from tests.support.rig.parts import wait_for_log
from tests.support.rig.relay import Relay

from .conftest import World, lane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [pytest.mark.nats]
UP, RELAY = "UP_00", "RELAY_00"


async def info(world: World, stream: str) -> dict[str, Any]:
    client = await world.hub_client()
    answer = await client.request(api_subject(f"STREAM.INFO.{stream}"), b"", timeout=30)
    found: dict[str, Any] = json.loads(answer.data)
    return found


async def fed_by(world: World, stream: str) -> list[str]:
    return sorted(
        each["name"] for each in (await info(world, stream))["config"].get("sources") or []
    )


@asynccontextmanager
async def all_comes(world: World, **settings: object) -> AsyncIterator[Trickle]:
    """Have a vehicle trickle meanwhile; then all is confirmed, by way of the relay, and nothing counts as lost or wrong.

    `settings`: keys of [link].
    """
    relay = Relay("127.0.0.1", world.hub.leaf_port)
    rig, _ = await world.vehicle_behind(relay, **settings)  # type: ignore[arg-type]
    trickle = Trickle()
    async with trickling(rig, trickle):
        await world.until(lambda report: lane(report).get("watermark", 0) > 3)
        yield trickle
        await trickle.more(10)
    await all_confirmed(world, rig, trickle.count)
    report = await world.until(lambda report: lane(report)["gaps"] == [])
    assert lane(report)["lost"] == 0
    assert await fed_by(world, UP) == [RELAY]
    await until_shown(world, "shard-unfed", shown=False)


async def test_a_hub_of_before_is_given_its_relays(world: World) -> None:
    """Its shards had the sources of vehicles themselves."""
    async with all_comes(world, push=False):
        await world.hub.control.stop()
        before = (await info(world, UP))["config"]
        await api(world, f"STREAM.DELETE.{RELAY}")
        async with await Registry.open(world.hub.directory / "hub.db") as registry:
            (device,) = (await read_devices(registry)).values()
        sources = [lane_source(device, name) for name in ("live", "bulk")]
        await api(world, f"STREAM.UPDATE.{UP}", before | {"sources": sources})
        last = (await info(world, UP))["state"]["last_seq"]

        async def taken_in() -> bool:
            return bool((await info(world, UP))["state"]["last_seq"] > last + 3)

        await until(taken_in, "UP sources the vehicle itself")
        logged = world.hub.control.logged_bytes
        await world.hub.start_control()
        await wait_for_log(world.hub.control, "shard_is_given_its_relay", logged)
    assert await fed_by(world, RELAY) == ["OUT_bulk", "OUT_live"]


async def test_a_relay_that_an_operator_deletes_is_made_anew(world: World) -> None:
    async with all_comes(world):
        logged = world.hub.control.logged_bytes
        await api(world, f"STREAM.DELETE.{RELAY}")
        await wait_for_log(world.hub.control, f"create {RELAY}", logged)


async def test_a_relay_goes_with_its_server_and_comes_again(world: World) -> None:
    """It held what had not reached UP yet, which the vehicle is asked for."""
    async with all_comes(world) as trickle:
        # The second time its control plane comes with it.
        for number in (signal.SIGKILL, signal.SIGTERM):
            logged = world.hub.control.logged_bytes
            if number == signal.SIGTERM:
                await world.hub.control.stop()
            await world.hub.server.stop(number)
            await trickle.more(5)
            await world.hub.server.start()
            if number == signal.SIGTERM:
                await world.hub.server.wait_listening(world.hub.client_port)
                await world.hub.start_control()
            await wait_for_log(world.hub.control, f"create {RELAY}", logged)
            await trickle.more(10)


async def test_a_shard_whose_relay_somebody_takes_away_gets_it_back(world: World) -> None:
    async with all_comes(world):
        logged = world.hub.control.logged_bytes
        await api(world, f"STREAM.UPDATE.{UP}", (await info(world, UP))["config"] | {"sources": []})
        await wait_for_log(world.hub.control, "shard_is_given_its_relay", logged)

"""A vehicle whose link has a budget: its bytes are counted, its flushes lengthen, and the hub is told."""

from __future__ import annotations

import asyncio
import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.client import connect
from backhaul_agent.errors import RefusedError
from tests.integration.conditions import until_shown, world
from tests.support.rig.relay import Relay

from .conftest import DEADLINE_S, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.rig.parts import DeviceRig

__all__ = ["world"]  # a fixture

pytestmark = [pytest.mark.nats]


async def status_of(
    rig: DeviceRig, wanted: Callable[[dict[str, Any], dict[str, Any]], bool]
) -> dict[str, Any]:
    """Ask the agent until its status, and its link's budget, fit; return the status."""
    status: dict[str, Any] = {}
    try:
        async with asyncio.timeout(DEADLINE_S), rig.connection() as client:
            while not status or not wanted(status, status["link"]["budget"]):
                status = json.loads((await client.request("agent.status", b"")).data)
                await asyncio.sleep(0.05)
    except TimeoutError:
        pytest.fail(f"never came true: {json.dumps(status)}")
    return status


async def seconds_between_messages(rig: DeviceRig) -> float:
    """Return how long one message of telemetry comes after another."""
    found: list[tuple[int, float]] = []
    for _ in range(3):
        seq = found[-1][0] if found else 0
        status = await status_of(rig, lambda status, _, seq=seq: bulk(status) > seq)  # type: ignore[misc]
        found.append((bulk(status), asyncio.get_running_loop().time()))
    return found[2][1] - found[1][1]


def bulk(status: dict[str, Any]) -> int:
    """Return the last seq of the lane with telemetry."""
    seq: int = status["lanes"]["bulk"]["last_seq"]
    return seq


async def test_a_budget_that_is_too_small_lengthens_flushes_thins_and_is_told(world: World) -> None:
    relay = Relay("127.0.0.1", world.hub.leaf_port)
    rig, _ = await world.vehicle_behind(
        relay, budget_mb_day=5, budget_window_s=1, budget_flush_s_max=3.0
    )
    done = asyncio.Event()
    refused: list[str] = []

    async def publish() -> None:
        number = 0
        async with connect(rig.url) as agent:
            while not done.is_set():
                number += 1
                try:
                    await agent.publish("imu", "text", random.Random(number).randbytes(200).hex())
                except RefusedError as error:
                    refused.append(error.code)
                await asyncio.sleep(0.03)

    publishing = asyncio.create_task(publish())
    try:
        before = (await status_of(rig, lambda _, budget: budget["flush_s"] > 1.0))["link"]["budget"]
        assert before["keeps_one_of"] == 1, "flushes first"
        passed_before = relay.up_bytes + relay.down_bytes
        await until_shown(world, "link-budget", about="day")
        status = await status_of(rig, lambda _, budget: budget["thinned_points"] > 0)
        budget = status["link"]["budget"]
        assert budget["flush_s"] == 3.0
        passed = relay.up_bytes + relay.down_bytes - passed_before
        assert await seconds_between_messages(rig) > 2.0
        found = await until_shown(world, "telemetry-thinned", about="day")
        assert found["device"] == "VID-001"
        (device,) = (await world.report())["devices"]
        assert device["agent"]["budget_pct"] is not None
        assert device["agent"]["link_bytes"]["telemetry"] > 0
    finally:
        done.set()
        await publishing
    assert set(refused) == {"thinned"}
    kinds = budget["day"]["kinds"]
    assert budget["day"]["bytes"] == sum(kinds.values())
    assert kinds["telemetry"] > 0
    assert kinds["housekeeping"] > 0
    # The link compresses, and has words of its own: the count is near what passes.
    assert 0.5 < (budget["day"]["bytes"] - before["day"]["bytes"]) / passed < 2.0

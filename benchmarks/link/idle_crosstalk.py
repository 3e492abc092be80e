"""Measure whether devices that are away cost bytes on the link of one that is there and idle.

Idle bytes of one vehicle's link, both directions, with no other device registered, then with 500.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from backhaul_hub.config import load
from backhaul_hub.enrol.add_device import DeviceSettings
from backhaul_runtime.clock import SystemClock
from benchmarks import scratch
from benchmarks.figures import Figure, at_most, report
from tests.support.hub_acts import create_device
from tests.support.rig.vehicle import VehicleRig, vehicle

_OTHERS = 500
_SETTLE_S = 15.0


def run(*, quick: bool) -> dict[str, object]:
    """Count idle bytes without and with the others, print the table, and return it."""
    seconds = 60.0 if quick else 300.0
    with scratch.directory("idle_crosstalk") as directory:
        alone, beside = asyncio.run(_both(directory, seconds))
    percent = 100 * (beside / alone - 1)
    return report(
        f"idle_crosstalk: idle bytes of one link, {seconds:.0f} s each",
        [
            Figure("alone", alone, "B/min"),
            Figure(f"beside {_OTHERS} that are away", beside, "B/min"),
            Figure("difference", abs(percent), "%", at_most(10), f"{percent:+.1f}%"),
        ],
    )


async def _both(directory: Path, seconds: float) -> tuple[float, float]:
    async with vehicle(directory) as rig:
        async with rig.hub.connection() as hub:
            await rig.sourced(hub)
        alone = await _idle(rig, seconds)
        await _add(rig)
        async with rig.hub.connection() as hub:
            await rig.sourced(hub)
        return alone, await _idle(rig, seconds)


async def _add(rig: VehicleRig) -> None:
    """Enrol the others, with the hub down meanwhile: one start instead of 500 reloads."""
    await rig.hub.stop()
    config = load(rig.hub.directory)
    for number in range(_OTHERS):
        device = f"AWAY-{number:03}"
        await create_device(rig.hub.directory, config, SystemClock(), device, DeviceSettings())
    await rig.hub.start()


async def _idle(rig: VehicleRig, seconds: float) -> float:
    await asyncio.sleep(_SETTLE_S)
    before = rig.relay.up_bytes + rig.relay.down_bytes
    await asyncio.sleep(seconds)
    return (rig.relay.up_bytes + rig.relay.down_bytes - before) / seconds * 60

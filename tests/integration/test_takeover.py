"""Two machines with a control plane: one is killed, stopped, or hands over, under load, and the other leads.

Real servers, a real vehicle, commands, telemetry and a revocation. NOT covered: a power cut, three servers, a
network that parts the machines.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from backhaul_hub.access.keys import read_keys
from backhaul_hub.access.push import jwts_there, revoked_for_ever
from tests.support.command_storm import settings
from tests.support.rig.parts import program, run_to_end
from tests.support.rig.standby import Machines
from tests.support.rig.vehicle import VehicleRig, vehicle
from tests.support.run_here import run_here
from tests.support.takeover_load import Load
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.client import Client

pytestmark = [pytest.mark.nats, pytest.mark.timeout(600)]


async def test_nothing_is_lost_and_nothing_done_twice_whoever_leads(tmp_path: Path) -> None:
    log = tmp_path / "started"
    log.touch()
    async with vehicle(tmp_path, agent_settings=settings(log)) as rig:
        stolen = "VID-STOLEN"
        await run_here(
            [program("backhaul-hub"), "add-device", stolen, "--dir", str(rig.hub.directory)]
        )
        await rig.hub.control.stop()
        machines = Machines(rig.hub)
        try:
            async with machines.client() as operator:
                await machines.start()
                load = Load(rig, operator)
                async with asyncio.TaskGroup() as group:
                    group.create_task(load.command())
                    group.create_task(load.keep())
                    key = await _through_three_takeovers(rig, machines, operator, load, stolen)
                    load.over.set()
                await until(load.settled, "commands and readings come to their ends")
                starts = Counter((await asyncio.to_thread(log.read_text)).split())
                assert starts == Counter(load.commands), "each command was started once"
                async with rig.hub.connection("system") as system:
                    keys = read_keys(rig.hub.directory)
                    [there] = await jwts_there(system, keys, "FLEET", 1)
                assert key in revoked_for_ever(there)
                # Whoever follows has all that the other one has written, by real turns of the reader.
                await until(
                    lambda: machines.tables("a") == machines.tables("b"), "both hold the same rows"
                )
                assert machines.tables("a")["lane_log"], "the vehicle's lanes are among them"
        finally:
            await machines.stop()


async def _through_three_takeovers(
    rig: VehicleRig, machines: Machines, operator: Client, load: Load, stolen: str
) -> str:
    """Kill the machine that leads, stop the next, hand over, and compare; return the key that was revoked meanwhile."""
    first = await machines.ready(operator)
    await machines.parts[first].stop(signal.SIGKILL)
    second = await machines.led_by(operator, machines.other(first))
    await machines.parts[first].start()
    await run_to_end(
        [program("backhaul-hub"), "revoke", stolen, "--dir", str(machines.places[second])]
    )
    await machines.ready(operator)
    paused = machines.parts[second]
    paused.send(signal.SIGSTOP)
    await machines.led_by(operator, first)
    paused.send(signal.SIGCONT)
    assert await machines.ready(operator) == first, "the one that stood still follows"
    await run_to_end([program("backhaul-hub"), "hand-over", "--dir", str(machines.places[second])])
    assert await machines.ready(operator) == second
    [(public_key,)] = [
        row[:1] for row in machines.tables(second)["revocation"] if row[1] == "FLEET"
    ]
    return str(public_key)

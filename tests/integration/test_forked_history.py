"""What the history reports of an hour, beside what the hub does: one machine, and then its clone as well.

Real hub, real leaf, real agents, real Spark.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from backhaul_codec.assurance.completeness import TWO_MACHINES
from backhaul_hub.config import load
from backhaul_hub.control.control_plane import ControlPlane
from tests.integration.conditions import until_shown
from tests.integration.epochs import HOUR_S, ShiftedClock, completeness, copy, iso, until
from tests.integration.machines import Machines
from tests.integration.older_copies import older, parts
from tests.support.rig.parts import program, run_to_end
from tests.support.rig.relay import Relay

from .conftest import World, vouched

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [pytest.mark.nats, pytest.mark.spark, pytest.mark.timeout(550)]
WITH_JAVA = Path(__file__).parents[2] / "tools" / "with-java"


@asynccontextmanager
async def plane_by(world: World, clock: ShiftedClock) -> AsyncIterator[None]:
    """Run the hub's control plane by a clock of its own, in which vehicles believe whatever it says."""
    await world.hub.control.stop()
    config = load(world.hub.directory)
    config = structs.replace(config, clock=structs.replace(config.clock, max_step_s=1e6))
    plane = ControlPlane(world.hub.directory, config, clock)
    running = asyncio.create_task(plane.run())
    try:
        yield
    finally:
        plane.stop()
        await running


async def reported(world: World, tables: Path, from_s: int) -> dict[str, Any]:
    """Bring the history up to date, and return its completeness report of an hour."""
    spark = [str(WITH_JAVA), program("backhaul-spark")]
    root = ["--table-root", str(tables)]
    await run_to_end([*spark, "ingest", "--once", "--hub-dir", str(world.hub.directory), *root])
    found = await run_to_end([program("backhaul-spark"), "completeness", *root, "--json"])
    [hour] = [each for each in json.loads(found)["hours"] if each["hour"] == iso(from_s)[:16] + "Z"]
    return hour  # type: ignore[no-any-return]


async def test_a_sound_hour_has_the_hubs_hashes_and_a_clone_takes_its_completeness_report(
    world: World, tmp_path: Path
) -> None:
    """An image is made in the hour before this one, and both machines go on from it in that hour."""
    clock = ShiftedClock(1)
    hour_s = clock.hour_s - HOUR_S
    async with plane_by(world, clock):
        # Neither machine's first words are to reach the hub before its link is cut: they would give the other one away.
        rig, relay = await world.vehicle_behind(Relay("127.0.0.1", world.hub.leaf_port), push=False)
        rig.agent_toml.write_text(f"{rig.agent_toml.read_text()}\n[clock]\nmax_step_s = 1e6\n")
        it = Machines(world, rig, relay)
        await it.keep(2)
        await it.settled()
        await rig.stop()
        for part in parts(rig):
            await copy(part, older(part, "two"))
        await it.start_held_back()
        await it.cut_keep_stop(3)
        await it.save("one")
        await it.put_in("two")
        await it.start_held_back()
        # More than the other one: what the hub's source has passed, it does not read again. So also on
        # `live`, or this ledger would count as an older copy of the other one's.
        await it.cut_keep_stop(20, events=40)
        await it.save("two")

        await it.put_in("one")
        await rig.start()
        await it.settled()
        await rig.agent.stop()
        clock.hours = 0
        await rig.start_agent()
        await vouched(rig)
        await it.keep(1)
        await it.settled()
        await until(world, "complete", hour_s)
        [at_the_hub] = await completeness(world, hour_s, hour_s + 1)
        sound = await reported(world, tmp_path / "t", hour_s)
        assert sound["state"] == "complete"
        assert {each["lane"] for each in sound["chain"] if each["high_hash"]} >= {"bulk"}
        assert sound["chain"] == at_the_hub["chain"]

        await it.save("one")
        await it.put_in("two")
        await rig.start()
        await it.settled()
        await until_shown(world, "two-machines")
        forked = await reported(world, tmp_path / "t", hour_s)
    assert forked["state"] == "explained"
    assert TWO_MACHINES in {
        each["reason"] for each in forked["explained"] if each["lane"] == "bulk"
    }

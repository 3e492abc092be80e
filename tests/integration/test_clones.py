"""A cloned disk: two machines with one identity, whatever the order in which they connect.

Both go on in the epoch of the image, each with readings of its own. All that either of them kept reaches
the hub once. Real hub, real leaf, real agent; the machines take turns in one place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.conditions import until_shown
from tests.integration.epochs import copy
from tests.integration.machines import Machines
from tests.integration.older_copies import older, parts
from tests.integration.readings import arrive

if TYPE_CHECKING:
    from .conftest import World

pytestmark = [pytest.mark.nats]


@pytest.fixture
async def machines(world: World) -> Machines:
    """A machine, "one", that runs, and the image of its disk, "two"; the hub holds all that is on it."""
    rig, relay = await world.vehicle()
    it = Machines(world, rig, relay)
    await it.keep(3)
    await it.settled()
    for part in parts(rig):
        await copy(part, older(part, "two"))  # of a machine that runs on, idle
    return it


@pytest.mark.parametrize(("first", "second"), [(4, 4), (2, 5), (5, 2)])
async def test_what_two_machines_kept_in_one_epoch_arrives_once(
    machines: Machines, first: int, second: int
) -> None:
    await machines.cut_keep_stop(first)
    await machines.save("one")
    await machines.put_in("two")
    await machines.rig.start()
    await machines.cut_keep_stop(second)
    await machines.save("two")
    for name in ("one", "two", "one"):
        await machines.put_in(name)
        await machines.rig.start()
        await machines.keep(1)
        await machines.settled()
        await machines.save(name)
    await machines.put_in("two")
    await machines.rig.start()
    await arrive(machines.world, machines.kept)
    # One machine-id, so that only what they sent gives them away.
    found = await until_shown(machines.world, "two-machines")
    assert "two machines use the identity of VID-001" in found["detail"]
    assert "both wrote in lane" in found["detail"]
    assert "backhaul-hub enrol" in found["hint"]

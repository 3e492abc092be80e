"""An agent or a hub of before there were pushes, with the other of today: all arrives, and once.

The parts of before come out of this repository's own history; a clone that is shallow skips these tests.
`BACKHAUL_OLDER=COMMIT` takes another commit.
"""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from tests.integration.older import ShallowCloneError, older_packages, run_mixed
from tests.integration.trickles import Trickle, all_confirmed, sources, trickling
from tests.support.rig.parts import DeviceRig, HubRig
from tests.support.rig.shaped_relay import ShapedRelay

from .conftest import World, lane

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.nats]


@pytest.fixture
def older_path(tmp_path: Path) -> str:
    """Return the PYTHONPATH of the packages as they were."""
    try:
        return older_packages(tmp_path / "older")
    except ShallowCloneError as error:
        pytest.skip(f"this clone is shallow: {error}")


class Mixed(World):
    """A hub and a vehicle. ``before``: returns the words before a program that make it one of before."""

    def __init__(
        self, directory: Path, stack: AsyncExitStack, before: Callable[[str], list[str]]
    ) -> None:
        super().__init__(directory, stack)
        self.before = before
        self.hub = HubRig(directory / "hub", watermark_interval_s=0.2, run=self._run)
        self.hub.control.before = (*before("backhaul-hub"),)

    async def _run(self, arguments: list[str]) -> str:
        return await run_mixed(self.before, arguments)


@pytest.mark.parametrize("older", ["backhaul-agent", "backhaul-hub"])
async def test_a_part_of_before_goes_on_with_the_other_of_today(
    tmp_path: Path, older: str, older_path: str
) -> None:
    words = ["env", f"PYTHONPATH={older_path}"]
    async with AsyncExitStack() as stack:
        world = Mixed(tmp_path, stack, lambda name: words if name == older else [])
        await world.start()
        link = ShapedRelay("127.0.0.1", world.hub.leaf_port)
        await stack.enter_async_context(link)
        directory = tmp_path / "VID-001"
        rig = await DeviceRig.add(world.hub, "VID-001", directory, link_port=link.port)
        rig.agent.before = (*world.before("backhaul-agent"),)
        stack.push_async_callback(rig.stop)
        await rig.start()
        trickle = Trickle()
        async with trickling(rig, trickle) as agent:
            await world.until(lambda report: lane(report).get("watermark", 0) > 3)
            await trickle.more(15)  # a vehicle of today has asked for leave by now
            await link.cut()
            await trickle.more(5)
            await link.heal()
            await trickle.more(5)
            status = await agent.status()
        await all_confirmed(world, rig, trickle.count)
        assert status["clock"]["quality"] == "synced"
        assert link.accepted == 2, "nothing but the cut has ended the link"
        if "BACKHAUL_OLDER" in os.environ:
            return
        if older == "backhaul-hub":
            assert status["link"]["pushed"] == []
            assert not status["link"]["in_asleep"]
        else:
            assert await sources(world) == ["OUT_bulk", "OUT_live"]

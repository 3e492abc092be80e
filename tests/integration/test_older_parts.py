"""An agent or a hub of before there were pushes, with the other of today: all arrives, and once.

The parts of before come out of this repository's own history; a clone that is shallow skips these tests.
`BACKHAUL_OLDER=COMMIT` takes another commit.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.trickles import Trickle, all_confirmed, sources, trickling
from tests.support.rig.parts import DeviceRig, HubRig, run_to_end
from tests.support.rig.shaped_relay import ShapedRelay

from .conftest import World, lane

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.nats]
ROOT = Path(__file__).parents[2]
NO_PUSHES = "bb03ca16d1f4859a06403a7ad5f9e9c0676bda34"
"""The last commit before an agent or a hub knew of pushes."""
PACKAGES = ("agent", "hub", "codec")
YOUNGER = ("--page-port", "--websocket-port")
"""Options of `init`, each with a value, that a hub of before may not know."""


@pytest.fixture
def older_path(tmp_path: Path) -> str:
    """Return the PYTHONPATH of the packages as they were."""
    commit, directory = os.environ.get("BACKHAUL_OLDER", NO_PUSHES), tmp_path / "older"
    asked = ["git", "-C", str(ROOT), "archive", commit, *PACKAGES]
    found = subprocess.run(asked, capture_output=True, check=False)
    if found.returncode:
        pytest.skip(f"this clone is shallow, it has no {commit}: {found.stderr.decode().strip()}")
    directory.mkdir()
    subprocess.run(["tar", "-x", "-C", str(directory)], input=found.stdout, check=True)
    return ":".join(str(directory / package) for package in PACKAGES)


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
        before = self.before(Path(arguments[0]).name)
        if before and arguments[1] == "init":
            known = await run_to_end([*before, arguments[0], "init", "--help"])
            for option in YOUNGER:
                if option not in known:
                    at = arguments.index(option)
                    arguments = arguments[:at] + arguments[at + 2 :]
        return await run_to_end([*before, *arguments])


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

"""A second agent on a ledger: somebody starts one by hand, beside the service.

It must refuse, and say whose the ledger is. That it changes nothing is seen by all other rules. NOT modelled:
a ledger on a file system that locks nothing, which is refused altogether (`tests/agent/test_ledger_lock.py`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from backhaul_agent.errors import LedgerInUseError
from tests.chaos.kinds import kind
from tests.chaos.schedule import Habit

if TYPE_CHECKING:
    from pathlib import Path

    from tests.chaos.schedule import Fault
    from tests.chaos.world import World

_READY_S = 15.0
"""For how long an agent that has just been started is waited for: until then a second one is the first."""
_LOOK_S = 0.05
_ENDS_S = 30.0
"""In which a second one has ended, on a busy machine: it takes a second to start."""


@kind("second-agent", Habit(1, 1.0, "agent"))
async def _second_agent(world: World, fault: Fault) -> None:
    """Start another agent with the files of the one that runs, and see it refuse."""
    vehicle = world.vehicles[fault.target]
    agent, agent_toml = vehicle.rig.agent, vehicle.rig.agent_toml
    lock = agent_toml.parent / "backhaul-agent" / "ledger.db.lock"
    async with world.turn_of(agent):
        if not await _holds(lock, agent.pid):
            world.idle[fault.kind] += 1
            return
        process = await asyncio.create_subprocess_exec(
            *vehicle.agent(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        said = b""
        try:
            async with asyncio.timeout(_ENDS_S):
                _, said = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
        if wrong := not_refused(process.returncode, said.decode(errors="replace"), agent.pid):
            world.not_refused.append(f"{fault}: {wrong}")
    await asyncio.sleep(fault.length_s)


def not_refused(status: int | None, said: str, pid: int) -> str:
    """Say what is wrong with how a second agent ended beside the one of this pid, "" for nothing."""
    if status == 1 and LedgerInUseError.__name__ in said and f"pid {pid}" in said:
        return ""
    return f"a second agent beside {pid} ended with {status}, and said: {said.strip()[-300:]}"


async def _holds(lock: Path, pid: int) -> bool:
    """Whether an agent has locked its ledger; it is waited for."""
    deadline_s = asyncio.get_running_loop().time() + _READY_S
    while asyncio.get_running_loop().time() < deadline_s:
        try:
            if lock.read_text().strip() == str(pid):
                return True
        except (OSError, ValueError):
            pass
        await asyncio.sleep(_LOOK_S)
    return False

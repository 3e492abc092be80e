"""Ledgers copied and put back, and hours judged."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.client import connect
from backhaul_runtime.clock import SystemClock
from tests.support.rig.parts import program, run_to_end

from .conftest import DEADLINE_S, World

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.rig.parts import DeviceRig


HOUR_S = 3600


def ledger_of(rig: DeviceRig) -> Path:
    return rig.agent_toml.parent / "backhaul-agent"


async def copy(source: Path, target: Path) -> None:
    """Copy a directory of a part that does not run, in place of what was there."""
    await run_to_end(["rm", "-rf", str(target)])
    await run_to_end(["cp", "-a", str(source), str(target)])


async def completeness(world: World, from_s: int, to_s: int) -> list[dict[str, Any]]:
    """Return what `backhaul-hub completeness --json` says of the hours from one time to another."""
    command = [
        program("backhaul-hub"),
        "completeness",
        "VID-001",
        "--dir",
        str(world.hub.directory),
    ]
    found = await run_to_end([*command, "--from", iso(from_s), "--to", iso(to_s), "--json"])
    hours: list[dict[str, Any]] = json.loads(found)["hours"]
    return hours


def now_s() -> int:
    return SystemClock().now_ns() // 10**9


def hour_of(time_s: int) -> int:
    """Return when the hour of a time began."""
    return time_s - time_s % HOUR_S


def iso(time_s: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time_s))


async def status_of(rig: DeviceRig) -> dict[str, Any]:
    async with connect(rig.url) as agent:
        return await agent.status()


class ShiftedClock(SystemClock):
    """The machine's clock, set back by some hours, and to an early minute: no hour ends meanwhile."""

    def __init__(self, hours: int) -> None:
        self.hours = hours
        self.hour_s = hour_of(now_s())
        """When the hour begins that it is where it is set back by none."""
        self._late_s = max(0, now_s() - self.hour_s - HOUR_S // 6)

    def now_ns(self) -> int:
        return super().now_ns() - (self.hours * HOUR_S + self._late_s) * 10**9


async def until(world: World, state: str, from_s: int) -> None:
    """Wait until the hub's completeness report of an hour says so."""
    hours: list[dict[str, Any]] = []
    try:
        async with asyncio.timeout(DEADLINE_S):
            while [hour["state"] for hour in hours] != [state]:
                hours = await completeness(world, from_s, from_s + 1)
    except TimeoutError:
        pytest.fail(f"never {state}: {hours}")

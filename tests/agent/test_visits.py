"""When a visit to the hub may end: the hub was heard, and what it had is committed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from backhaul_agent.config import Config, DeviceConfig
from backhaul_agent.leaf.link_state import UplinkState
from backhaul_agent.metered.controller import Visits
from tests.support.agent_clock import FakeClock

HEARD, BEFORE = {"lag": 0, "active": 1_000_000_000}, {"lag": 0, "active": 3_000_000_000}
BEHIND, NEVER = {"lag": 1, "active": 1_000_000_000}, {"lag": 0, "active": -1}


@pytest.mark.parametrize(
    ("source", "committed", "told"),
    [
        (HEARD, True, True),
        (HEARD, False, False),
        (BEFORE, True, False),
        (BEHIND, True, False),
        (NEVER, True, False),
    ],
    ids=["all of it", "not committed", "heard before the link came up", "behind", "never heard"],
)
async def test_the_hub_has_told_all_once_that_is_heard_and_committed(
    source: dict[str, int], committed: bool, told: bool
) -> None:
    async def at_end(_: object) -> bool:
        return committed

    async def info(_: str) -> dict[str, Any]:
        return {"sources": [source]}

    config = Config(device=DeviceConfig(id="VID-001", token="t", down_stream="DOWN_00"))
    clock, uplink = FakeClock(), UplinkState()
    ledger: Any = None
    downlink: Any = SimpleNamespace(streams=["IN"], at_end=at_end)
    visits = Visits(config, clock, ledger, [], downlink, uplink, lambda: 0.5)
    for tell in uplink.on_up:
        tell()
    clock.advance(2)
    jetstream: Any = SimpleNamespace(info=info)
    assert await visits._told(jetstream) is told

"""Budgets of a link, and days in which bytes are spent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backhaul_agent.hub_time.hub_clock import HubClock
from backhaul_agent.leaf.link_state import LinkTraffic
from backhaul_agent.metered.account import LinkAccount, read_text

if TYPE_CHECKING:
    from backhaul_agent.link_config import LinkConfig
    from tests.support.agent_clock import FakeClock

NOON_NS = 1_767_268_800_000_000_000  # 2026-01-01T12:00:00Z
FLUSH_S = 0.9


def account(clock: FakeClock, link: LinkConfig) -> tuple[LinkAccount, list[float]]:
    """Return an account whose clock is believed, and the flushes that it sets."""
    flushes: list[float] = []
    hub_clock = HubClock.of(clock)
    return LinkAccount(link, FLUSH_S, hub_clock, flushes.append, lambda: None, read_text), flushes


def spend(of: LinkAccount, clock: FakeClock, seconds: int) -> None:
    """Have the link carry 10 kB a second, all of telemetry."""
    for second in range(seconds):
        of.budget.written("telemetry", 10_000)
        of.on_traffic(LinkTraffic("NA", 0, 10_000 * second, 0, 0))
        clock.advance(1.0)
        of.step()

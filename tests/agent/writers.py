"""A writer's configuration and clock for tests."""

from __future__ import annotations

import asyncio

from backhaul_agent.config import Config, DeviceConfig, FrameConfig, IngestConfig
from tests.support.agent_clock import FakeClock

CONFIG = Config(
    device=DeviceConfig(id="VID-001", token="tok"),
    frame=FrameConfig(points_max=5, bytes_max=4096, age_s_max=0.05),
    ingest=IngestConfig(pending_bytes_max=64 * 1024, pending_messages_max=16, stage_s_max=0.02),
)


class RunningClock(FakeClock):
    """Follows the event loop: the writer's deadlines come, and are milliseconds."""

    def monotonic_s(self) -> float:
        return asyncio.get_running_loop().time()

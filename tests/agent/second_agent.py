"""A second agent that is started on a ledger in use."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.agent_process import AgentProcess

SECOND_S_MAX = 120.0


def second(agent: AgentProcess) -> subprocess.CompletedProcess[str]:
    """Run `backhaul-agent run` by hand, beside the one that runs."""
    command = [sys.executable, "-m", "backhaul_agent", "run", "--config", str(agent.config)]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=SECOND_S_MAX
    )

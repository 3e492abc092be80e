"""The library for programs on the vehicle: points, events, values, history, and artifacts.

Enter at `connect`, which returns an `Agent`; `history` reads what the vehicle still has. A program
asks the running agent over NATS: nothing here opens the ledger or reads the agent's configuration.
"""

from backhaul_agent.client.artifacts import ArtifactClient
from backhaul_agent.client.batch import Batch
from backhaul_agent.client.client import Agent, connect
from backhaul_agent.client.config import ConfigClient

__all__ = ["Agent", "ArtifactClient", "Batch", "ConfigClient", "connect"]

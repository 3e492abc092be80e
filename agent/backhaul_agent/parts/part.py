"""The protocol by which the agent runs each of its parts."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from nats.aio.client import Client

    from backhaul_agent.leaf.jetstream import JetStream
    from backhaul_agent.status.status import Report

Tasks: TypeAlias = Iterable[Coroutine[Any, Any, None]]


class Part(Protocol):
    """Parts of one subject; each method may be left out."""

    def tasks(self) -> Tasks:
        """Return the tasks that run from the start of the agent to its stop."""
        return ()

    def session(self, client: Client, jetstream: JetStream) -> Tasks:
        """Return the tasks that run as long as a connection to the leaf server does."""
        return ()

    def reports(self) -> Iterable[Report]:
        """Return the sections of the status to which it adds."""
        return ()

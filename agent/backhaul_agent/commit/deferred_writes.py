"""What the agent itself wants written with the next commit: it is retried, never refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from backhaul_agent.ledger.rows import Changes, Inward, LaneStep, Outgoing, Quarantine


@dataclass(slots=True)
class Owed:
    """What the agent itself wants written: it is retried, never refused."""

    watermarks: dict[tuple[str, int], int] = field(default_factory=dict)
    steps: list[LaneStep] = field(default_factory=list)
    used: dict[str, int] = field(default_factory=dict)
    quarantine: list[Quarantine] = field(default_factory=list)
    messages: list[Outgoing] = field(default_factory=list)
    inbound: list[Inward] = field(default_factory=list)
    done: list[asyncio.Future[None]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(
            self.watermarks
            or self.steps
            or self.used
            or self.quarantine
            or self.messages
            or self.inbound
            or self.done
        )

    def add_to(self, changes: Changes) -> None:
        """Have all of it written with ``changes``, but for what the hub's messages do to heads."""
        changes.messages += self.messages
        changes.former = self.watermarks
        changes.steps = self.steps
        changes.used = self.used
        changes.quarantine = self.quarantine
        for inbound in self.inbound:
            changes.messages += inbound.messages
            changes.meta |= inbound.meta
            changes.settled += inbound.settled
            changes.commands += inbound.commands
            changes.evict += inbound.evict
            changes.evicted += inbound.evicted
            changes.adopted += inbound.adopted

    def put_behind(self, newer: Owed) -> None:
        """Take in what has come since this was tried, and failed."""
        self.watermarks |= newer.watermarks  # the newer word counts
        self.steps += newer.steps
        self.used |= newer.used
        self.quarantine += newer.quarantine
        self.messages += newer.messages
        self.inbound += newer.inbound
        self.done += newer.done

    def settle(self) -> None:
        """Tell whoever waits that all of it is durable."""
        for inbound in self.inbound:
            for tell in inbound.on_durable:
                tell()
        for future in self.done:
            if not future.done():
                future.set_result(None)

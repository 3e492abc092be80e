"""What programs publish, on its way into the ledger. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from backhaul_agent.commit.framer import Points, Write
from backhaul_codec.wire.placed import Placed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from backhaul_agent.commit.framer import Content
    from backhaul_agent.errors import RefusedError


class Arrival(NamedTuple):
    """Points on their way in; ``answer`` is called once, with None when they are durable."""

    content: Content
    size: int
    waited_for: bool
    answer: Callable[[Content, RefusedError | None], None]

    def marked(self, mark: int) -> Arrival:
        """Return it with a write's messages marked: their stamps must be put right later."""
        if not mark or not isinstance(self.content, Write):
            return self
        messages = [message._replace(boot=mark) for message in self.content.messages]
        return self._replace(content=replace(self.content, messages=messages))


def points_in(content: Content) -> int:
    """Return how many points an arrival holds."""
    return len(content.points) if isinstance(content, Points) else content.points


def heads_in(content: Content) -> Sequence[Placed]:
    """Return the points of an arrival that heads are made of: state and config, not telemetry."""
    if isinstance(content, Points):
        return [Placed("", point) for point in content.points] if content.live else []
    return content.placed if isinstance(content, Write) else []

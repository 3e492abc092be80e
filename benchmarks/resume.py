"""Measure how soon a restored link carries what waited behind it.

A vehicle takes 100 readings a second, all the time. Its link is cut for a while, then restored;
measured from there: until the first reading of the backlog is in the hub's stream, and until all
that was kept by then is. The same for a half-open link: bytes stop while both connections stay, then
flow again. Beside it, in the same run, plain NATS: a hub stream that sources a leaf
stream with default settings (see `plain_link`), both through the same kind of relay.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from backhaul_agent.client import connect
from backhaul_agent.clock import SystemClock
from demo.shaped_relay import ShapedRelay

from . import scratch
from .errors import BenchmarkError, LostDataError
from .figures import Figure, at_most, report
from .link_ends import AgentPublisher, Arrivals, PlainPublisher, driving
from .plain_link import HUB_STREAM, plain_link
from .stream_content import Tail
from .vehicle_rig import connection, vehicle

if TYPE_CHECKING:
    from pathlib import Path

    from demo.relay import Relay

    from .link_ends import Publisher

POINTS_PER_S = 100.0
# Long enough that both ends notice: a source that is back within about 10 s never stopped waiting.
_CUT_S = 20.0
_SETTLE_S = 3.0
_TIMEOUT_S = 200.0  # plain sourcing backs off for up to two minutes


@dataclass(frozen=True, slots=True)
class Cut:
    """What one cut cost, in seconds after the link was restored."""

    first_s: float
    drained_s: float
    waiting_points: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """All cuts of one kind of link, and the points at both of its ends when all was over."""

    cuts: list[Cut]
    points: int

    def firsts(self) -> list[float]:
        """Return seconds until the first backlog message, cut by cut."""
        return [cut.first_s for cut in self.cuts]

    def drains(self) -> list[float]:
        """Return seconds until nothing waited any more, cut by cut."""
        return [cut.drained_s for cut in self.cuts]

    def as_json(self) -> dict[str, object]:
        """Return it ready for JSON."""
        return {
            "first_s": [round(value, 3) for value in self.firsts()],
            "drained_s": [round(value, 3) for value in self.drains()],
            "waiting_points": [cut.waiting_points for cut in self.cuts],
            "points_kept_and_arrived": self.points,
        }


def run(*, quick: bool) -> dict[str, object]:
    """Cut both kinds of link several times (quick: fewer), print the table, and return it."""
    with scratch.directory("resume") as directory:
        ours = asyncio.run(_ours(directory, cuts=2 if quick else 5, cut_s=_CUT_S))
        silent = directory / "silent"
        silent.mkdir()
        half_open = asyncio.run(_ours(silent, cuts=2 if quick else 5, cut_s=_CUT_S, silent=True))
        plain = asyncio.run(_plain(directory, cuts=1 if quick else 2, cut_s=_CUT_S))
    first, plain_first = median(ours.firsts()), median(plain.firsts())
    figures = [
        Figure("first backlog message, median", first, "s", at_most(1.5), _cuts(ours)),
        Figure("first backlog message, worst", max(ours.firsts()), "s"),
        Figure("drained, median", median(ours.drains()), "s"),
        Figure("drained, worst", max(ours.drains()), "s"),
        Figure(
            "half-open: first message, median",
            median(half_open.firsts()),
            "s",
            at_most(15),
            _cuts(half_open),
        ),
        Figure("half-open: first message, worst", max(half_open.firsts()), "s"),
        Figure("plain: first message, median", plain_first, "s", note=_cuts(plain)),
        Figure("plain: first message, worst", max(plain.firsts()), "s"),
        Figure("plain: drained, median", median(plain.drains()), "s"),
        Figure("plain: drained, worst", max(plain.drains()), "s"),
        Figure("first message: plain / ours", plain_first / first, ""),
        Figure("points kept, and all at the hub", ours.points, "points"),
        Figure("plain: points kept, and all there", plain.points, "points"),
    ]
    return report(
        "resume: seconds after the link is restored",
        figures,
        ours=ours.as_json(),
        half_open=half_open.as_json(),
        plain=plain.as_json(),
    )


async def _ours(directory: Path, *, cuts: int, cut_s: float, silent: bool = False) -> Outcome:
    arrivals = Arrivals()
    async with (
        vehicle(directory, relay_to=ShapedRelay) as rig,
        connection(rig.hub.url()) as hub,
        connect(rig.device.url) as agent,
    ):
        tail = Tail(hub, "UP_00", arrivals.ours)
        await tail.start()
        await rig.sourced(hub)
        ends = _Ends(rig.relay, AgentPublisher(agent), arrivals, tail, silent=silent)
        return await ends.measure(cuts, cut_s)


async def _plain(directory: Path, *, cuts: int, cut_s: float) -> Outcome:
    arrivals = Arrivals()
    async with (
        plain_link(directory) as link,
        connection(link.hub_url) as hub,
        connection(link.leaf_url) as leaf,
    ):
        tail = Tail(hub, HUB_STREAM, arrivals.plain)
        await tail.start()
        ends = _Ends(link.relay, PlainPublisher(leaf), arrivals, tail)
        return await ends.measure(cuts, cut_s)


class _Ends:
    """A link with its publisher on one side and the hub's stream on the other."""

    def __init__(
        self,
        relay: Relay,
        publisher: Publisher,
        arrivals: Arrivals,
        tail: Tail,
        *,
        silent: bool = False,
    ) -> None:
        self._relay = relay
        self._silent = silent
        self._publisher = publisher
        self._arrivals = arrivals
        self._tail = tail
        self._clock = SystemClock()

    async def measure(self, cuts: int, cut_s: float) -> Outcome:
        """Cut and restore several times while readings are taken; then count both ends."""
        found = []
        async with driving(self._publisher, POINTS_PER_S, self._clock):
            for _ in range(cuts):
                await self._arrived(self._publisher.kept, "before a cut")
                await asyncio.sleep(_SETTLE_S)
                found.append(await self._cut(cut_s))
        await self._arrived(self._publisher.kept, "at the end")
        kept, arrived = self._publisher.kept, self._arrivals.points
        if arrived != kept:
            raise LostDataError("resume", missing=0, doubled=arrived - kept)
        return Outcome(found, kept)

    async def _interrupt(self) -> None:
        if self._silent:
            assert isinstance(self._relay, ShapedRelay)
            self._relay.fall_silent()
        else:
            await self._relay.cut()

    async def _restore(self) -> None:
        if self._silent:
            assert isinstance(self._relay, ShapedRelay)
            self._relay.flow_again()
        else:
            await self._relay.heal()

    async def _cut(self, cut_s: float) -> Cut:
        await self._interrupt()
        await asyncio.sleep(cut_s)
        kept = self._publisher.kept
        waiting = kept - self._arrivals.points
        if waiting < POINTS_PER_S * cut_s / 2:
            raise BenchmarkError(f"only {waiting} points wait: the cut link has carried the others")
        self._arrivals.restored(self._clock.time_ns())
        loop = asyncio.get_running_loop()
        restored_s = loop.time()
        await self._restore()
        await self._tail.until(
            lambda: self._arrivals.first_s is not None, _TIMEOUT_S, "a first message after a cut"
        )
        assert self._arrivals.first_s is not None
        first_s = self._arrivals.first_s - restored_s
        await self._arrived(kept, "after a cut")
        return Cut(first_s, loop.time() - restored_s, waiting)

    async def _arrived(self, kept: int, when: str) -> None:
        """Wait until as many points have arrived."""
        await self._tail.until(
            lambda: self._arrivals.points >= kept, _TIMEOUT_S, f"{kept} points, {when}"
        )


def _cuts(outcome: Outcome) -> str:
    return f"cuts of {_CUT_S:.0f} s: {len(outcome.cuts)}"

"""Put a link out of order, bring it back, and see when each direction carries what waited."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from backhaul_runtime.clock import SystemClock
from benchmarks.errors import BenchmarkError
from benchmarks.link.link_ends import driving
from tests.support.errors import LostDataError, TrialError

if TYPE_CHECKING:
    from benchmarks.link.link_ends import Arrivals, Publisher
    from tests.support.rig.shaped_relay import ShapedRelay
    from tests.support.stream_content import Tail

# Long enough that both ends notice: a source that is back within about 10 s never stopped waiting.
OUTAGE_S = 20.0
_SETTLE_S = 3.0
NEVER_S = float("inf")


class Fault(Enum):
    """What is wrong with a link."""

    CUT = "cut"
    """Connections are reset, new ones refused: both ends know."""
    HALF_OPEN = "half-open"
    """Bytes stop while connections stay; afterwards those go on."""
    FORGOTTEN = "forgotten"
    """Likewise, but what was open never carries a byte again: a router has lost its table."""


@dataclass(frozen=True, slots=True)
class Outage:
    """What one outage cost, in seconds after the network was whole again.

    `up_s`: until the first reading that waited is in the hub's stream; `drained_s`: until all are;
    `down_s`: until a local program at the vehicle has what was written at the hub meanwhile.
    """

    fault: Fault
    up_s: float
    down_s: float
    drained_s: float
    waiting_points: int


class Inward:
    """Notes when numbers written at the hub have reached a local program at the vehicle."""

    def __init__(self) -> None:
        self._at_s: dict[int, asyncio.Future[float]] = {}

    def expect(self, number: int) -> asyncio.Future[float]:
        """Return what will hold the time of its arrival, by the event loop's clock."""
        loop = asyncio.get_running_loop()
        return self._at_s.setdefault(number, loop.create_future())

    def arrived(self, number: int) -> None:
        """Note that a number is there; only its first time counts."""
        at_s = self.expect(number)
        if not at_s.done():
            at_s.set_result(asyncio.get_running_loop().time())


@dataclass(frozen=True, slots=True)
class LinkUnderTest:
    """A link with its publisher on one side, the hub's stream on the other, and the way back.

    `write_down` writes a number at the hub, which `inward` notes when it has reached the vehicle.
    """

    relay: ShapedRelay
    publisher: Publisher
    arrivals: Arrivals
    tail: Tail
    write_down: Callable[[int], Awaitable[object]]
    inward: Inward

    async def measure(
        self, faults: Sequence[Fault], *, points_per_s: float, timeout_s: float
    ) -> list[Outage]:
        """Have one outage after another while readings are taken; then count both ends.

        An outage that is not over in `timeout_s` is the last one.

        Raises:
            LostDataError: the hub has not what the vehicle kept.
        """
        found: list[Outage] = []
        async with driving(self.publisher, points_per_s, SystemClock()):
            for number, fault in enumerate(faults):
                if not await self._arrived(self.publisher.kept, timeout_s):
                    raise BenchmarkError("the link does not carry what it should before an outage")
                await asyncio.sleep(_SETTLE_S)
                found.append(await self._outage(fault, number, points_per_s, timeout_s))
                if NEVER_S in (found[-1].drained_s, found[-1].down_s):
                    return found
        kept = self.publisher.kept
        await self._arrived(kept, timeout_s)
        if self.arrivals.points != kept:
            difference = self.arrivals.points - kept
            raise LostDataError("resume", missing=max(0, -difference), doubled=max(0, difference))
        return found

    async def _outage(
        self, fault: Fault, number: int, points_per_s: float, timeout_s: float
    ) -> Outage:
        loop = asyncio.get_running_loop()
        await self._begin(fault)
        await asyncio.sleep(OUTAGE_S / 2)
        back_down = self.inward.expect(number)
        await self.write_down(number)
        await asyncio.sleep(OUTAGE_S / 2)
        kept = self.publisher.kept
        waiting = kept - self.arrivals.points
        if waiting < points_per_s * OUTAGE_S / 2 or back_down.done():
            raise BenchmarkError(f"the link has carried something: {waiting} points wait")
        self.arrivals.restored(SystemClock().now_ns())
        whole_s = loop.time()
        await self._end(fault)
        drained = await self._arrived(kept, timeout_s)
        drained_s = loop.time() if drained else NEVER_S
        up_s = NEVER_S if self.arrivals.first_s is None else self.arrivals.first_s
        left_s = max(0.1, whole_s + timeout_s - loop.time())
        await asyncio.wait([back_down], timeout=left_s)
        down_s = back_down.result() if back_down.done() else NEVER_S
        return Outage(fault, up_s - whole_s, down_s - whole_s, drained_s - whole_s, waiting)

    async def _begin(self, fault: Fault) -> None:
        if fault is Fault.CUT:
            await self.relay.cut()
        else:
            self.relay.fall_silent(forget=fault is Fault.FORGOTTEN)

    async def _end(self, fault: Fault) -> None:
        if fault is Fault.CUT:
            await self.relay.heal()
        else:
            self.relay.flow_again()

    async def _arrived(self, kept: int, timeout_s: float) -> bool:
        """Wait until as many points have arrived; return whether they have, in time."""
        try:
            await self.tail.until(lambda: self.arrivals.points >= kept, timeout_s, f"{kept} points")
        except TrialError:
            return False
        return True

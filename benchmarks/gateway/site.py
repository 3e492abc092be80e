"""A vehicle and a hub of some system with the link between them, and how its cost is taken."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from backhaul_codec import Point
from backhaul_runtime.clock import SYSTEM_CLOCK
from benchmarks.errors import BenchmarkError
from benchmarks.load import drive, working
from tests.support.readings_account import Account

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Mapping

    from backhaul_runtime.clock import Clock
    from tests.support.gateway_work import Work
    from tests.support.link_kinds import LinkKinds
    from tests.support.rig.shaped_relay import ShapedRelay

DEVICE = "VID-001"
DAY_S = 86_400
ARRIVE_S = 60.0
SETTLE_S = 12.0  # after the set-up; what belongs to it is over
_QUIET_S = 0.2
_BURST_S_MAX = 0.7


class Inbox:
    """The readings that have come out at the hub, and when."""

    def __init__(self) -> None:
        self.account = Account()
        self._changed = asyncio.Event()
        self._last_s = 0.0

    def take(self, points: Iterable[Point], message: Hashable = None) -> None:
        """Take in the readings of a message at the hub, see `Account.take`."""
        if self.account.take(points, message):
            self._last_s = asyncio.get_running_loop().time()
            self._changed.set()

    async def until(self, there: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Wait until something has become true by what arrived.

        Raises:
            BenchmarkError: it has not, in time.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while not there():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise BenchmarkError(f"{what}: not in {timeout_s:.0f} s") from None

    async def boundary(self) -> None:
        """Wait until some message has come, and those that come with it: the work begins anew then."""
        loop = asyncio.get_running_loop()
        before = self.account.arrived
        await self.until(lambda: self.account.arrived > before, ARRIVE_S, "nothing arrives")
        end_s = loop.time() + _BURST_S_MAX
        while (left_s := min(self._last_s + _QUIET_S, end_s) - loop.time()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(left_s)


@dataclass(slots=True)
class Site:
    """One system at work.

    `send` sends readings of one moment, and returns when the vehicle has them.
    `command` sends a command, and returns after how many seconds the vehicle has it.
    `reading` sends one reading, and returns how many seconds after its flush the hub has it.
    `stored` returns bytes and messages that the hub has stored.
    """

    name: str
    relay: ShapedRelay
    send: Callable[[list[Point]], Awaitable[object]]
    inbox: Inbox = field(default_factory=Inbox)
    command: Callable[[], Awaitable[float]] | None = None
    reading: Callable[[Point], Awaitable[float]] | None = None
    stored: Callable[[], Awaitable[tuple[int, int]]] | None = None
    kinds: LinkKinds | None = None
    """Counts the link's bytes by kind, where it is known how to read them."""

    @property
    def link_bytes(self) -> int:
        """Bytes so far, both directions."""
        return self.relay.up_bytes + self.relay.down_bytes

    async def ready(self) -> None:
        """Wait until a reading has gone the whole way."""
        point = Point("setup", "ready", now_ms_ns(SYSTEM_CLOCK), 1.0)
        await self.sent([point])
        await self.inbox.until(
            lambda: self.inbox.account.is_there(point), ARRIVE_S, f"{self.name}: the first reading"
        )

    async def sent(self, points: list[Point]) -> None:
        """Send readings and have the account expect them."""
        self.inbox.account.send(points)
        await self.send(points)

    async def all_arrived(self, timeout_s: float = ARRIVE_S) -> None:
        """Wait until each reading is there, once and as it was sent.

        Raises:
            LostDataError, BenchmarkError: it is not so.
        """
        account = self.inbox.account
        await self.inbox.until(lambda: not account.missing, timeout_s, f"{self.name}: all readings")
        account.require_exact(self.name)


class Cost(NamedTuple):
    """The bytes that the link carried while so many points came out at the hub."""

    points: int
    up_bytes: int
    down_bytes: int
    seconds: float
    stored_bytes: int
    stored_messages: int
    commands_s: list[float]
    first_per_point: float | None = None
    """Bytes for each point while it warmed up, from the first readings on; None where it did not."""
    by_kind: Mapping[str, int] = {}
    """Of the bytes of both directions; empty where nobody knows."""

    @property
    def per_point(self) -> float:
        """Bytes in both directions for each point."""
        return (self.up_bytes + self.down_bytes) / self.points

    @property
    def mb_day(self) -> float:
        """Megabytes a day of such work."""
        return (self.up_bytes + self.down_bytes) / self.seconds * DAY_S / 1e6


async def cost(
    site: Site,
    work: Work | float,
    seconds: float,
    *,
    beat_s: float = 1.0,
    commands: int = 0,
    warm_s: float = 0.0,
) -> Cost:
    """Return what a system costs while it works, its stopping and starting left out.

    Args:
        site: the system.
        work: a gateway's, or so many points a second of a simulated van.
        seconds: how long to count; from the end of one burst at the hub to the end of another.
        beat_s: how often the hub hears something, in seconds.
        commands: how many to send while the work goes on, after the count.
        warm_s: for so long the work goes on before the count: what a system learns of it once is counted apart.
    """
    loop = asyncio.get_running_loop()
    account, relay = site.inbox.account, site.relay
    async with driving(site, work):
        first_bytes, first_points = site.link_bytes, account.arrived
        await asyncio.sleep(2.0 + warm_s)
        await site.inbox.boundary()
        first_bytes, first_points = (
            site.link_bytes - first_bytes,
            account.arrived - first_points,
        )
        began_s, stored, kinds = loop.time(), await _stored(site), kinds_of(site)
        points, up, down = account.arrived, relay.up_bytes, relay.down_bytes
        await asyncio.sleep(seconds - 0.3 * beat_s)
        await site.inbox.boundary()
        took_s, stored_end, kinds = (
            loop.time() - began_s,
            await _stored(site),
            kinds_of(site) - kinds,
        )
        points, up, down = account.arrived - points, relay.up_bytes - up, relay.down_bytes - down
        commands_s = [await _command(site, 1.3) for _ in range(commands)]
    await site.all_arrived()
    return Cost(
        points,
        up,
        down,
        took_s,
        stored_end[0] - stored[0],
        stored_end[1] - stored[1],
        commands_s,
        first_bytes / first_points if warm_s and first_points else None,
        kinds,
    )


def kinds_of(site: Site) -> Counter[str]:
    """Return the bytes of the link so far, by kind; empty where nobody knows."""
    return Counter(site.kinds.bytes) if site.kinds else Counter()


async def idle(site: Site, seconds: float) -> tuple[float, Mapping[str, int]]:
    """Return the bytes of a second in which nothing is said, and those of all seconds by kind."""
    await asyncio.sleep(SETTLE_S)
    before, kinds = site.link_bytes, kinds_of(site)
    await asyncio.sleep(seconds)
    return (site.link_bytes - before) / seconds, kinds_of(site) - kinds


async def idle_commands(site: Site, times: int) -> list[float]:
    """Return after how many seconds the vehicle had commands, the link idle before each."""
    return [await _command(site, SETTLE_S) for _ in range(times)]


async def idle_readings(site: Site, times: int) -> list[float]:
    """Return how many seconds after their flush readings were at the hub, the link idle before each."""
    assert site.reading is not None
    found = []
    for number in range(times):
        await asyncio.sleep(SETTLE_S + 0.1 * number)  # at no certain moment of a beat
        point = Point("sensor00", "alone", now_ms_ns(SYSTEM_CLOCK), number / 10)
        site.inbox.account.send([point])
        found.append(await site.reading(point))
    return found


async def resumes(site: Site, work: Work, times: int, cut_s: float) -> list[float]:
    """Return how many seconds after a cut the hub had the first reading that waited."""
    found = []
    async with driving(site, work):
        for _ in range(times):
            await asyncio.sleep(3.0)
            await site.inbox.boundary()
            await site.relay.cut()
            await asyncio.sleep(cut_s)
            arrived = site.inbox.account.arrived
            await site.relay.heal()
            began_s = asyncio.get_running_loop().time()
            await site.inbox.until(
                lambda arrived=arrived: site.inbox.account.arrived > arrived,  # type: ignore[misc]
                5 * ARRIVE_S,
                f"{site.name}: a reading after a cut",
            )
            found.append(asyncio.get_running_loop().time() - began_s)
    await site.all_arrived()
    return found


@asynccontextmanager
async def driving(site: Site, work: Work | float) -> AsyncIterator[None]:
    """Have the site work meanwhile; at the end, wait until it has sent the last."""
    async with working(_points(work, SYSTEM_CLOCK), site.sent):
        yield


async def _points(work: Work | float, clock: Clock) -> AsyncIterator[list[Point]]:
    if isinstance(work, int | float):
        async for batch in drive(DEVICE, work, clock):
            yield [point for points in batch.values() for point in points]
        return
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    for reading in work.readings(Random(1)):
        await asyncio.sleep(max(0.0, began_s + reading.at_s - loop.time()))
        time_ns = now_ms_ns(clock)
        yield [Point(value.node, value.type, time_ns, value.value) for value in reading.values]


async def _command(site: Site, after_s: float) -> float:
    await asyncio.sleep(after_s)
    assert site.command is not None
    async with asyncio.timeout(ARRIVE_S):
        return await site.command()


async def _stored(site: Site) -> tuple[int, int]:
    return (0, 0) if site.stored is None else await site.stored()


def now_ms_ns(clock: Clock) -> int:
    """Return the time as a gateway stamps: whole milliseconds, in nanoseconds."""
    return clock.now_ns() // 1_000_000 * 1_000_000


class EachSecond:
    """Gathers readings and sends what has come, once a second."""

    def __init__(self, send: Callable[[list[Point]], Awaitable[object]]) -> None:
        self._send = send
        self._points: list[Point] = []

    async def send(self, points: list[Point]) -> None:
        """Take readings that will be sent within a second."""
        self._points += points

    async def run(self) -> None:
        """Send for ever."""
        while True:
            await asyncio.sleep(1.0)
            points, self._points = self._points, []
            if points:
                await self._send(points)

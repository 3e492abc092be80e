"""Measure a link of 20 kbit/s with 600 ms of round trip: the backlog drains, the new comes first.

A backlog is made while the link is cut: an hour of a recorded car, a frame for each second, as the agent
makes them when they come at the car's own pace. Then the link is restored, and while the backlog
drains an event is published every few seconds. Measured: when the newest values (`e.heads`) are in
the hub's stream, how much of the link the drain fills (bytes at the relay from the first message of
the backlog to its last), how long events take from publishing until they are in the hub's stream,
and how often the leaf had to connect again. The agent is told that the link carries 1000 kbit/s, its
default: it has to find out.

Beside it, in the same run over a link of the same kind, plain NATS: a stream that sources the leaf's
with default settings, backlog and events in the same messages, until time is up.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median, quantiles

from nats.aio.msg import Msg

from backhaul_agent.client import connect
from backhaul_codec import Point, decode, encode_frame, peek
from backhaul_codec.kinds import FRAME
from backhaul_codec.subjects import parse_uplink
from benchmarks import scratch
from benchmarks.figures import Figure, at_least, at_most, report, skipped
from benchmarks.link.plain_link import HUB_STREAM, plain_link
from tests.support.backlog import publish_bodies
from tests.support.errors import TrialError
from tests.support.recordings import data_directory, kit
from tests.support.rig.shaped_relay import ShapedRelay
from tests.support.rig.vehicle import connection, vehicle
from tests.support.stream_content import Tail

RATE_BYTES_S = 2500.0
ROUND_TRIP_S = 0.6
_EVERY_S = (2.0, 4.0)  # drawn anew each time, so that events fall anywhere in a round
_FIRST_S_MAX = 60.0
_RECORDED_S = 3600
_QUICK_S = 300
_LIMIT = 0.25  # seconds, for each second of the backlog
_AS_THEY_COME = "[frame]\npoints_max = 2\n"  # then every frame passes through as it is


@dataclass(slots=True)
class Outcome:
    """What one kind of link did."""

    filled: float = 0.0
    link_bytes: int = 0
    drained_s: float = float("inf")
    waits_s: list[float] = field(default_factory=list)
    lost: int = 0
    connections: int = 0
    arrived: int = 0
    messages: int = 0
    window: str = ""
    heads_s: float | None = None
    first_s: float = float("inf")

    def figures(self, name: str, *, aims: bool) -> list[Figure]:
        """Return what goes into the table."""
        waits = sorted(self.waits_s) + [float("inf")] * max(self.lost, 2 - len(self.waits_s))
        ideal = "" if self.arrived < self.messages else f"{self.drained_s:.0f} s"
        begin = []
        if self.heads_s is not None:
            note = "seconds after the network is whole"
            aim = at_most(4) if aims else None
            begin.append(Figure(f"{name}: newest values there", self.heads_s, "s", aim, note))
        return [
            *begin,
            Figure(f"{name}: backlog begins", self.first_s, "s"),
            Figure(
                f"{name}: of the link filled",
                100 * self.filled,
                "%",
                at_least(85) if aims else None,
                f"{self.arrived} of {self.messages} messages, {ideal or 'not drained'}",
            ),
            Figure(
                f"{name}: event, median",
                median(waits),
                "s",
                at_most(3) if aims else None,
                f"{len(self.waits_s)} events came, {self.lost} did not",
            ),
            Figure(f"{name}: event, 90%", quantiles(waits, n=10)[-1], "s"),
            Figure(
                f"{name}: leaf connected again",
                self.connections - 1,
                "times",
                at_most(0) if aims else None,
                self.window,
            ),
        ]


def run(*, quick: bool) -> dict[str, object]:
    """Drain a backlog over both kinds of link at the same time, print the table, return it."""
    data = data_directory()
    if data is None:
        return skipped("slow_link")
    seconds = _seconds(data, _QUICK_S if quick else _RECORDED_S)
    frames = [encode_frame(points, epoch=0, seq=0) for points in seconds]
    readings, size_bytes = sum(map(len, seconds)), sum(map(len, frames))
    with scratch.directory("slow_link") as directory:
        ours, plain = asyncio.run(_both(directory, frames))
    return report(
        f"slow_link: {RATE_BYTES_S * 8 / 1000:.0f} kbit/s, {ROUND_TRIP_S * 1000:.0f} ms; "
        f"{len(frames)} s of a car, {readings:,} readings in frames of {size_bytes / 1e3:,.0f} kB",
        [*ours.figures("backhaul", aims=True), *plain.figures("plain", aims=False)],
    )


def _seconds(data: Path, count: int) -> list[list[Point]]:
    """Return the readings of the first seconds in which the car was driven."""
    found: dict[int, list[Point]] = {}
    for points in kit(data).values():
        for point in points:
            found.setdefault(point.time // 1_000_000_000, []).append(point)
        if len(found) >= count:
            break
    return list(found.values())[:count]


async def _both(directory: Path, frames: list[bytes]) -> tuple[Outcome, Outcome]:
    (directory / "ours").mkdir()
    async with asyncio.TaskGroup() as tasks:
        ours = tasks.create_task(
            backlog_over(_link, directory / "ours", "car", frames, limit_s=len(frames) * _LIMIT)
        )
        plain = tasks.create_task(_plain(directory, frames))
    return ours.result(), plain.result()


class _Drain:
    """One backlog that drains, and the events published meanwhile."""

    def __init__(self, relay: ShapedRelay, messages: int) -> None:
        self.outcome = Outcome(messages=messages)
        self._relay = relay
        self._loop = asyncio.get_running_loop()
        self._sent: dict[int, float] = {}
        self._backlog: set[object] = set()
        self._whole_s = self._began_s = self._last_s = 0.0
        self._began_bytes = self._last_bytes = 0

    def backlog(self, identity: object) -> None:
        """Note that a message of the backlog has arrived."""
        self._last_s, self._last_bytes = self._loop.time(), self._relay.up_bytes
        if not self._backlog:
            self._began_s, self._began_bytes = self._last_s, self._last_bytes
        self._backlog.add(identity)

    def heads(self) -> None:
        """Note that newest values have arrived."""
        now_s = self._loop.time()
        # What came before the cut is read when the drain begins: no new ones can be that early.
        if self.outcome.heads_s is None and 0 < self._whole_s < now_s - ROUND_TRIP_S / 2:
            self.outcome.heads_s = now_s - self._whole_s

    def event(self, number: int) -> None:
        """Note that an event has arrived."""
        if (sent_s := self._sent.pop(number, None)) is not None:
            self.outcome.waits_s.append(self._loop.time() - sent_s)

    async def go(
        self, tail: Tail, publish: Callable[[int], Awaitable[object]], limit_s: float
    ) -> Outcome:
        """Restore the link, publish events until all has drained or the time is over."""
        before = self._relay.accepted
        await self._relay.heal()
        self._whole_s = self._loop.time()
        end_s = self._whole_s + limit_s
        chance = random.Random(1)
        number = 0
        while len(self._backlog) < self.outcome.messages and self._loop.time() < end_s:
            await asyncio.sleep(chance.uniform(*_EVERY_S))
            if self._backlog:
                number += 1
                self._sent[number] = self._loop.time()
                await publish(number)
        try:
            await tail.until(lambda: not self._sent, 30.0, "the last event")
        except TrialError:
            self.outcome.lost = len(self._sent)
        self.outcome.arrived = len(self._backlog)
        self.outcome.connections = self._relay.accepted - before
        if self.outcome.arrived == self.outcome.messages:
            self.outcome.drained_s = self._last_s - self._began_s
        if self._backlog:
            self.outcome.first_s = self._began_s - self._whole_s
        took_s = max(self._last_s - self._began_s, 1e-9)
        assert self._relay.rate_bytes_s is not None
        self.outcome.link_bytes = self._last_bytes - self._began_bytes
        self.outcome.filled = self.outcome.link_bytes / took_s / self._relay.rate_bytes_s
        return self.outcome


_link = partial(ShapedRelay, rate_bytes_s=RATE_BYTES_S, round_trip_s=ROUND_TRIP_S)


async def backlog_over(
    link: Callable[[str, int], ShapedRelay],
    directory: Path,
    node: str,
    frames: list[bytes],
    *,
    limit_s: float,
) -> Outcome:
    """Have a vehicle keep frames of a node while its link is cut, restore it, and see them drain."""
    async with (
        vehicle(directory, relay_to=link, agent_settings=_AS_THEY_COME) as rig,
        rig.hub.connection() as hub,
        rig.device.connection() as leaf,
        connect(rig.device.url) as agent,
    ):
        assert isinstance(rig.relay, ShapedRelay)
        await rig.sourced(hub, _FIRST_S_MAX)
        await rig.relay.cut()
        await publish_bodies(leaf, node, frames)
        status = await rig.appended(leaf)
        drain = _Drain(rig.relay, status["lanes"]["bulk"]["last_seq"])

        def arrived(message: Msg) -> None:
            uplink = parse_uplink(message.subject)
            if uplink.letter == FRAME.letter:
                drain.backlog(peek(message.data).seq)  # cheap: the relay lives in this process too
            elif uplink.type == "heads":
                drain.heads()
            elif uplink.node == "probe":
                drain.event(int(str(decode(message.data).points[0].value)))

        tail = Tail(hub, "UP_00", arrived)
        await tail.start()
        outcome = await drain.go(
            tail,
            lambda number: agent.publish("probe", "n", str(number), lane="live"),
            limit_s,
        )
        known = (await rig.status(leaf))["link"]
        windows = ", ".join(f"{lane} {size}" for lane, size in known["windows"].items())
        outcome.window = f"measured {known['rate_kbit_s']} kbit/s, windows {windows}"
        return outcome


async def _plain(directory: Path, frames: list[bytes]) -> Outcome:
    async with (
        # Set up before the link is slow: over the slow one it was not after a minute.
        plain_link(directory, relay_to=ShapedRelay) as link,
        connection(link.hub_url) as hub,
        connection(link.leaf_url) as leaf,
    ):
        assert isinstance(link.relay, ShapedRelay)
        jetstream = leaf.jetstream()
        await link.relay.cut()
        link.relay.rate_bytes_s, link.relay.round_trip_s = RATE_BYTES_S, ROUND_TRIP_S
        for number, body in enumerate(frames):
            await jetstream.publish(f"p.backlog.{number}", body)
        drain = _Drain(link.relay, len(frames))

        def arrived(message: Msg) -> None:
            _, kind, number = message.subject.split(".")
            if kind == "backlog":
                drain.backlog(number)
            else:
                drain.event(int(number))

        tail = Tail(hub, HUB_STREAM, arrived)
        await tail.start()
        return await drain.go(
            tail,
            lambda number: jetstream.publish(f"p.event.{number}", b"x" * 40),
            len(frames) * _LIMIT,
        )

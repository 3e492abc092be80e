"""What others notice of a vehicle that misbehaves: how long an event of an honest one takes.

From the program on the honest vehicle until the event is stored in UP at the hub, all parts real, over
loopback. First with nothing else going on; then beside one enrolled vehicle at a time that floods the
hub with all that a link of 100 Mbit/s carries (tests/support/rude_leaf.py), from its first moment on: before it is
noticed, while it is cut, and while it keeps coming back and is refused.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from nats.aio.msg import Msg

from backhaul_agent.client import Agent, connect
from benchmarks import scratch
from benchmarks.figures import Figure, at_most, report
from tests.support.rig.vehicle import vehicle
from tests.support.rude_leaf import KINDS, RudeVehicle
from tests.support.stream_content import Tail

TIMES_MAX = 2
_PAUSE_S = 0.05
_ARRIVE_S_MAX = 60.0
_REST_S = 3.0


def run(*, quick: bool) -> dict[str, object]:
    """Measure the quiet value, then each kind of abuse beside it."""
    with scratch.directory("abuse") as directory:
        figures = asyncio.run(_measure(directory, seconds=5 if quick else 20))
    return report(
        "abuse: an event of an honest vehicle, until the hub has it, beside a rude one",
        figures,
        note=f"aims: {TIMES_MAX} times the quiet value",
    )


async def _measure(directory: Path, *, seconds: float) -> list[Figure]:
    async with (
        vehicle(directory) as rig,
        rig.hub.connection() as hub,
        connect(rig.device.url) as agent,
    ):
        events = Events(agent)
        tail = Tail(hub, "UP_00", events.arrived)
        await tail.start()
        await rig.sourced(hub)
        await events.report(tail, "warm", 2)
        quiet = await events.report(tail, "quiet", seconds)
        p50, p95 = _percentile(quiet, 0.5), _percentile(quiet, 0.95)
        figures = [
            Figure("quiet: half are faster than", 1e3 * p50, "ms"),
            Figure("quiet: 95% are", 1e3 * p95, "ms"),
        ]
        for number, kind in enumerate(KINDS):
            rude = await RudeVehicle.enrol(rig.hub, f"VID-9{number:02}", kind)
            await rude.part.start()
            found = await events.report(tail, f"abuse{number}", seconds)
            await rude.part.stop()
            figures += [
                _figure(f"{kind}: half", _percentile(found, 0.5), p50, _summary(rude.report)),
                _figure(f"{kind}: 95%", _percentile(found, 0.95), p95, ""),
                Figure(f"{kind}: slowest", 1e3 * max(found), "ms"),
            ]
            await asyncio.sleep(_REST_S)
        return figures


class Events:
    """Reports events one after another, and notes how long each takes."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._sent_s: dict[str, float] = {}
        self._arrived_s: dict[str, float] = {}

    def arrived(self, message: Msg) -> None:
        """Take in a message of UP."""
        kind = message.subject.rpartition(".")[2]
        if kind in self._sent_s:
            self._arrived_s.setdefault(kind, asyncio.get_running_loop().time())

    async def report(self, tail: Tail, name: str, seconds: float) -> list[float]:
        """Report events for so long; return how many seconds each took to be stored at the hub.

        Raises:
            BenchmarkError: one did not arrive.
        """
        loop = asyncio.get_running_loop()
        kinds: list[str] = []
        end_s = loop.time() + seconds
        while loop.time() < end_s:
            kind = f"{name}-{len(kinds)}"
            kinds.append(kind)
            self._sent_s[kind] = loop.time()
            await self._agent.event(kind)
            await asyncio.sleep(_PAUSE_S)
        await tail.until(
            lambda: all(kind in self._arrived_s for kind in kinds),
            _ARRIVE_S_MAX,
            "an event of the honest vehicle",
        )
        return [self._arrived_s[kind] - self._sent_s[kind] for kind in kinds]


def _percentile(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def _summary(report: dict[str, Any]) -> str:
    sent, refused = f"{report['sent_bytes'] / 1e6:.0f} MB sent", report["refused"]
    return f"{sent}, refused {refused} times" if refused else sent


def _figure(name: str, value_s: float, quiet_s: float, note: str) -> Figure:
    return Figure(name, 1e3 * value_s, "ms", at_most(TIMES_MAX * 1e3 * quiet_s), note)

"""Measure how soon a restored link carries what waited behind it, in both directions.

A vehicle takes 100 readings a second, all the time. Its link is put out of order for 20 s, in one of
three ways (`outages.Fault`), and meanwhile a config point is written at the hub. Measured from the
moment the network is whole: until the first reading of the backlog is in the hub's stream, until
all that was kept by then is, and until a local program at the vehicle has the config point.

Beside it, in the same run and at the same time, plain NATS: streams that source each other with default
settings, on servers with default settings (see `plain_link`), through the same kind of relay. Its
outages last minutes, so five links have theirs side by side.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from nats.aio.client import Client
from nats.aio.msg import Msg

from backhaul_agent.client import connect
from benchmarks import scratch
from benchmarks.errors import BenchmarkError
from benchmarks.figures import Figure, at_most, readable, report
from benchmarks.link.link_ends import AgentPublisher, Arrivals, PlainPublisher
from benchmarks.link.outages import NEVER_S, OUTAGE_S, Fault, Inward, LinkUnderTest
from benchmarks.link.plain_link import HUB_STREAM, IN_STREAM, plain_link
from tests.support.rig.shaped_relay import ShapedRelay
from tests.support.rig.vehicle import DEVICE, connection, vehicle
from tests.support.stream_content import Tail

if TYPE_CHECKING:
    from benchmarks.figures import Aim
    from benchmarks.link.outages import Outage

POINTS_PER_S = 100.0
PLAIN_POINTS_PER_S = 20.0  # a message each, five links: as many messages as one vehicle has points
TIMES = 5
_AIMS_S = {Fault.CUT: 1.5, Fault.HALF_OPEN: 15.0, Fault.FORGOTTEN: 15.0}
_TIMEOUT_S = 100.0
_PLAIN_TIMEOUT_S = 400.0  # two unanswered pings of two minutes, and a source's own patience


def run(*, quick: bool) -> dict[str, object]:
    """Have outages of every kind on both kinds of link, print the table, and return it."""
    times = 1 if quick else TIMES
    plain_faults = [Fault.CUT] if quick else list(Fault)
    with scratch.directory("resume") as directory:
        ours, plain = asyncio.run(_both(directory, times, plain_faults))
    figures = [figure for fault in Fault for figure in _figures(fault, ours, plain)]
    return report(
        f"resume: seconds after the network is whole, outages of {OUTAGE_S:.0f} s",
        figures,
        ours=[_as_json(outage) for outage in ours],
        plain=[_as_json(outage) for outage in plain],
    )


async def _both(
    directory: Path, times: int, plain_faults: Sequence[Fault]
) -> tuple[list[Outage], list[Outage]]:
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        # One after the other: each looks for free ports.
        links = [
            await stack.enter_async_context(_plain(directory / f"plain-{number}"))
            for number in range(times)
        ]
        plain = [
            tasks.create_task(
                link.measure(
                    plain_faults, points_per_s=PLAIN_POINTS_PER_S, timeout_s=_PLAIN_TIMEOUT_S
                )
            )
            for link in links
        ]
        link = await stack.enter_async_context(_ours(directory / "ours"))
        ours = await link.measure(
            [fault for fault in Fault for _ in range(times)],
            points_per_s=POINTS_PER_S,
            timeout_s=_TIMEOUT_S,
        )
    return ours, [outage for task in plain for outage in task.result()]


@asynccontextmanager
async def _ours(directory: Path) -> AsyncIterator[LinkUnderTest]:
    directory.mkdir()
    async with (
        vehicle(directory, relay_to=ShapedRelay) as rig,
        rig.hub.connection() as hub,
        rig.device.connection() as leaf,
        connect(rig.device.url) as agent,
    ):
        assert isinstance(rig.relay, ShapedRelay)
        arrivals, inward = Arrivals(), Inward()
        tail = Tail(hub, "UP_00", arrivals.ours)
        await tail.start()

        async def changed(message: Msg) -> None:
            inward.arrived(int(json.loads(message.data)["value"]))

        await leaf.subscribe("agent.changed.dash.outage.>", cb=changed)
        await rig.sourced(hub)
        yield LinkUnderTest(
            rig.relay, AgentPublisher(agent), arrivals, tail, partial(_write_config, hub), inward
        )


async def _write_config(hub: Client, number: int) -> None:
    body = {"device": DEVICE, "node": "dash", "points": [{"type": "outage", "value": number}]}
    answer = json.loads((await hub.request("hub.set", json.dumps(body).encode())).data)
    if "error" in answer:
        raise BenchmarkError(f"the hub refused a config point: {answer}")


@asynccontextmanager
async def _plain(directory: Path) -> AsyncIterator[LinkUnderTest]:
    directory.mkdir()
    async with (
        plain_link(directory, relay_to=ShapedRelay, server_defaults=True) as link,
        connection(link.hub_url) as hub,
        connection(link.leaf_url) as leaf,
    ):
        assert isinstance(link.relay, ShapedRelay)
        await link.add_way_down()
        arrivals, inward = Arrivals(), Inward()
        tail = Tail(hub, HUB_STREAM, arrivals.plain)
        await tail.start()
        await Tail(leaf, IN_STREAM, lambda message: inward.arrived(int(message.data))).start()
        jetstream = hub.jetstream()
        yield LinkUnderTest(
            link.relay,
            PlainPublisher(leaf),
            arrivals,
            tail,
            lambda number: jetstream.publish("d.outage", str(number).encode()),
            inward,
        )


def _figures(fault: Fault, ours: list[Outage], plain: list[Outage]) -> list[Figure]:
    aim = at_most(_AIMS_S[fault])
    found = []
    for name, outages, aim_or_none in (("", ours, aim), ("plain ", plain, None)):
        if same := [outage for outage in outages if outage.fault is fault]:
            title = f"{name}{fault.value}"
            found += [
                _figure(f"{title}, up: median", [each.up_s for each in same], aim_or_none),
                _figure(f"{title}, down: median", [each.down_s for each in same], aim_or_none),
                _figure(f"{title}, up, all of it: median", [each.drained_s for each in same]),
            ]
    return found


def _figure(name: str, values: Sequence[float], aim: Aim | None = None) -> Figure:
    each = ", ".join(
        f"> {_PLAIN_TIMEOUT_S:.0f}" if value == NEVER_S else readable(value)
        for value in sorted(values)
    )
    return Figure(name, median(values), "s", aim, each)


def _as_json(outage: Outage) -> dict[str, object]:
    times = {"up_s": outage.up_s, "down_s": outage.down_s, "drained_s": outage.drained_s}
    return {
        "fault": outage.fault.value,
        **{name: None if value == NEVER_S else round(value, 3) for name, value in times.items()},
        "waiting_points": outage.waiting_points,
    }

"""A thousand real leaf links at one hub and at three servers: idle, with a trickle, a restart, a backlog.

Servers at both ends, their links, streams and durables, and the hub's control plane are real; ten nats-servers hold the
vehicles, a hundred accounts each. In the place of agents something speaks that says over the link what an idle agent says
(tests/support/leafs). Bytes are the kernel's count for the TCP connections of the hub's leaf ports, without headers of TCP and IP, and without TLS.

`--rows`: a idle and with a trickle, b a restart of the hub, c three servers of which one is killed, d a backlog of
lanes that are sourced. `--vehicles`: how many links. `--unpacked`: with `compression: off` at the hub. With `--quick` all of it is done at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet
from pathlib import Path

from benchmarks import scratch
from benchmarks.figures import Figure, report
from benchmarks.gateway.options import CHOSEN, Options
from benchmarks.hub.thousand_leafs.fleet import Size
from benchmarks.hub.thousand_leafs.one_hub import one_hub
from benchmarks.hub.thousand_leafs.sourced import sourced
from benchmarks.hub.thousand_leafs.three_servers import three_servers

_PING_S = 28
Step = Callable[[Path, Size, AbstractSet[str]], Awaitable[list[Figure]]]


def run(*, quick: bool) -> dict[str, object]:
    """Measure, print the table, and return it."""
    chosen = CHOSEN.get(Options())
    links = chosen.vehicles or (50 if quick else 1_000)
    size = Size(links, _PING_S, 10, 20) if quick else Size(links, 2 * _PING_S, 10, 120)
    found: list[Figure] = []
    for figures in asyncio.run(_measured(size, chosen.rows, at_once=quick)):
        found += figures
    return report(f"thousand_leafs: {links:,} leaf links", found, links=links)


async def _measured(size: Size, rows: AbstractSet[str], *, at_once: bool) -> list[list[Figure]]:
    steps = {"ab": one_hub, "c": three_servers, "d": sourced}
    few = asyncio.Semaphore(len(steps) if at_once else 1)

    async def measured(step: Step, asked: AbstractSet[str]) -> list[Figure]:
        async with few:
            with scratch.directory("thousand_leafs") as directory:
                return await step(directory, size, asked)

    asked = {letters: rows & set(letters) for letters in steps}
    return await asyncio.gather(
        *(measured(step, asked[letters]) for letters, step in steps.items() if asked[letters])
    )

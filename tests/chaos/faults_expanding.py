"""Frames that come to thousands of times their size, from a program of a vehicle's own.

They are valid, and so they are kept, or refused: nothing of them may be lost or doubled, and beside them
nothing of anybody else's. NOT modelled: a vehicle whose agent was replaced, and sends them whole; that is
`tests/security/test_expanding.py`.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

import nats
from nats.errors import Error as NatsError

from tests.chaos.evidence import EXPANDING
from tests.chaos.kinds import kind
from tests.chaos.schedule import Habit
from tests.support.bombs import points_bomb, text_bomb

if TYPE_CHECKING:
    from tests.chaos.schedule import Fault
    from tests.chaos.world import World

_ANSWER_S = 5.0
_FRAMES_MAX = 6
_POINTS = 80_000
"""Of a frame: about what an agent takes before it is inflated, 256 KiB."""
_COPIES = 60
"""Of a text of 138 kB: 8 MB, of which a hub takes 256 MiB at once before it keeps a vehicle out."""


@kind("expanding", Habit(2, 3.0, "program"))
async def _expand(world: World, fault: Fault) -> None:
    """Have a program publish some; where nobody answers, nothing is known, and nothing is counted."""
    vehicle, random = world.vehicles[fault.target], Random(str(fault))
    kept = 0
    for _ in range(random.randint(1, _FRAMES_MAX)):
        t0_ns = world.now_ns()
        if random.random() < 0.7:
            points = _POINTS
            frame = points_bomb(0, points=points, epoch=0, node=EXPANDING, t0_ns=t0_ns)
        else:
            points = _COPIES
            frame = text_bomb(0, copies=points, epoch=0, node=EXPANDING, t0_ns=t0_ns)
        with suppress(NatsError, OSError, TimeoutError):
            async with asyncio.timeout(2 * _ANSWER_S):
                client = await nats.connect(vehicle.rig.url, allow_reconnect=False)
                try:
                    answer = await client.request(f"app.{EXPANDING}", frame, timeout=_ANSWER_S)
                    kept += json.loads(answer.data).get("kept", 0)
                finally:
                    await client.close()
    world.expanding[fault.target] += kept
    world.idle[fault.kind] += not kept
    await asyncio.sleep(fault.length_s)

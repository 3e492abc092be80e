"""A source that stands still while everybody says that its lag is 0.

How: the durable that it reads by is reset to a sequence which its stream has yet to reach, as a stray reset
of the source's own once did. NOT modelled: a server that stops by a fault of its own.
"""

from __future__ import annotations

import asyncio
import json
import tomllib
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

from nats.errors import Error as NatsError

from tests.chaos.kinds import kind
from tests.chaos.schedule import Habit

if TYPE_CHECKING:
    from tests.chaos.schedule import Fault
    from tests.chaos.world import World

_AHEAD_MAX = 500
_ASK_S = 2.0


@kind("stalled-source", Habit(2, 1.0, "source"))
async def _stall_source(world: World, fault: Fault) -> None:
    """Reset a lane's durable to beyond its stream; where the leaf is away, nothing happens, and counts."""
    rig, random = world.vehicles[fault.target].rig, Random(str(fault))
    stream = f"OUT_{random.choice(('live', 'bulk'))}"
    token = tomllib.loads(rig.agent_toml.read_text())["device"]["token"]
    done = False
    with suppress(NatsError, OSError):
        async with asyncio.timeout(2 * _ASK_S), rig.connection() as leaf:
            answer = await leaf.request(f"$JS.API.STREAM.INFO.{stream}", b"", timeout=_ASK_S)
            if (state := json.loads(answer.data).get("state")) is not None:
                beyond = {"seq": state["last_seq"] + random.randint(2, _AHEAD_MAX)}
                reset = f"$JS.API.CONSUMER.RESET.{stream}.{token}"
                answer = await leaf.request(reset, json.dumps(beyond).encode(), timeout=_ASK_S)
                done = "error" not in json.loads(answer.data)
    world.idle[fault.kind] += not done
    await asyncio.sleep(fault.length_s)

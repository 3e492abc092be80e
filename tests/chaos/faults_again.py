"""Messages that are delivered once more: on the way up, on the way down, and operators' commands.

How: what a stream holds is appended to it again, to the byte, as a sender would who has lost the answer and
knows nothing of expected sequences; and a command is published again under its id, as docs/commands.md has
operators do. NOT modelled: bytes that come twice on one connection; TCP does not let them.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import TYPE_CHECKING, Any

from nats.errors import Error as NatsError
from nats.js.api import Header

from backhaul_hub.lane_names import DOWN
from tests.chaos.kinds import kind
from tests.chaos.operators import DEADLINE_S
from tests.chaos.schedule import Habit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.chaos.schedule import Fault
    from tests.chaos.world import World

_MANY_MAX = 40
_NEAR = 300
"""Of a stream only so many of the newest messages: older ones may be gone at any time."""
_KNOWN_MAX = 1_000
_ASK_S = 5.0


@asynccontextmanager
async def _as_far_as_it_goes(world: World, fault: Fault) -> AsyncIterator[Random]:
    """Do something for as long as servers answer, then let the fault's time pass."""
    before = world.copies[fault.kind]
    with suppress(NatsError, OSError):
        async with asyncio.timeout(2 * _ASK_S):
            yield Random(str(fault))
    world.idle[fault.kind] += world.copies[fault.kind] == before
    await asyncio.sleep(fault.length_s)


@kind("again-up", Habit(2, 1.0, "source"))
async def _up_again(world: World, fault: Fault) -> None:
    """Append messages of a vehicle to its stream OUT again; its agent sees others' at the end."""
    async with (
        _as_far_as_it_goes(world, fault) as random,
        world.vehicles[fault.target].rig.connection() as leaf,
    ):
        stream, jetstream = f"OUT_{random.choice(('live', 'bulk'))}", leaf.jetstream(timeout=_ASK_S)
        state = (await jetstream.stream_info(stream)).state
        held = range(max(state.first_seq, state.last_seq - _NEAR + 1), state.last_seq + 1)
        for seq in random.sample(held, min(len(held), random.randint(1, _MANY_MAX))):
            message = await jetstream.get_msg(stream, seq)
            await jetstream.publish(str(message.subject), message.data or b"")
            world.copies[fault.kind] += 1


@kind("again-down", Habit(2, 1.0, "source"))
async def _down_again(world: World, fault: Fault) -> None:
    """Append messages for a vehicle to DOWN again: configuration, commands, watermarks, requests."""
    async with _as_far_as_it_goes(world, fault) as random, world.hub.connection() as hub:
        jetstream = hub.jetstream(timeout=_ASK_S)
        state = (await jetstream.stream_info(DOWN, f"in.{fault.target}.>")).state
        subjects = sorted(state.subjects or {})
        for subject in random.sample(subjects, min(len(subjects), random.randint(1, _MANY_MAX))):
            message = await jetstream.get_last_msg(DOWN, subject)
            # In the place of a newer one it would be no copy, but a step back in time.
            last = {Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value: str(message.seq)}
            with suppress(NatsError):
                await jetstream.publish(subject, message.data or b"", headers=last)
                world.copies[fault.kind] += 1


@kind("again-command", Habit(2, 1.0, "operators"))
async def _commands_again(world: World, fault: Fault) -> None:
    """Publish commands again that the hub knows, whatever has become of them."""
    async with _as_far_as_it_goes(world, fault) as random, world.hub.connection() as hub:
        asked = json.dumps({"device": fault.target, "limit": _KNOWN_MAX}).encode()
        answer = await hub.request("hub.commands", asked, timeout=_ASK_S)
        known: list[dict[str, Any]] = json.loads(answer.data).get("commands", [])
        jetstream = hub.jetstream(timeout=_ASK_S)
        for each in random.sample(known, min(len(known), random.randint(1, _MANY_MAX))):
            body = json.dumps({"id": each["id"], "deadline_s": DEADLINE_S}).encode()
            await jetstream.publish(f"fleet.prod.veh.{fault.target}.cmd.{each['name']}", body)
            world.copies[fault.kind] += 1

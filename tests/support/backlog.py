"""A backlog of frames, made quickly: encoded beforehand, published like any local program's."""

from __future__ import annotations

import asyncio
import json
from itertools import cycle, islice
from typing import TYPE_CHECKING

from backhaul_codec import encode_frame, peek
from backhaul_codec.kinds import FRAME
from backhaul_codec.subjects import encode_token, parse_uplink
from tests.support.errors import LostDataError, TrialError
from tests.support.numbered_points import NODE, points
from tests.support.stream_content import read_stream

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nats.aio.client import Client

# The agent passes a batch of this size through as a frame of its own (default settings).
FRAME_POINTS = 125
_DISTINCT_FRAMES = 200
_IN_FLIGHT = 64


async def publish_frames(client: Client, count: int) -> int:
    """Have the agent keep `count` frames of `FRAME_POINTS`; return how many points that were.

    `client` is connected to the leaf server. The same few frames come again and again: each is a
    message of its own to everyone, and nothing here looks at their points.

    Raises:
        TrialError: the agent refused one.
    """
    bodies = [
        encode_frame(points(FRAME_POINTS, number * FRAME_POINTS), epoch=0, seq=0)
        for number in range(min(count, _DISTINCT_FRAMES))
    ]
    return await publish_bodies(client, NODE, islice(cycle(bodies), count))


async def publish_bodies(client: Client, node: str, bodies: Iterable[bytes]) -> int:
    """Have the agent keep these frames of a node; return how many points that were.

    Raises:
        TrialError: the agent refused one.
    """
    subject = f"app.{encode_token(node)}"
    remaining = iter(bodies)
    kept = 0

    async def one_after_another() -> None:
        nonlocal kept
        for body in remaining:
            answer = await client.request(subject, body, timeout=30)
            said = json.loads(answer.data)
            if "kept" not in said:
                raise TrialError(f"the agent refused a frame: {said}")
            kept += said["kept"]

    async with asyncio.TaskGroup() as tasks:
        for _ in range(_IN_FLIGHT):
            tasks.create_task(one_after_another())
    return kept


async def require_all_frames(hub: Client, last_seq: int) -> int:
    """Check that UP holds every bulk message up to `last_seq`; return how many are repeats.

    Raises:
        LostDataError: some are missing.
    """
    seqs = [
        peek(body).seq
        for subject, body in await read_stream(hub, "UP_00")
        if parse_uplink(subject).letter == FRAME.letter
    ]
    missing = len(set(range(1, last_seq + 1)) - set(seqs))
    if missing:
        raise LostDataError("UP_00, in messages", missing=missing, doubled=0)
    return len(seqs) - len(set(seqs))

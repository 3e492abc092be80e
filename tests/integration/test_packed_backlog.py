"""A backlog over a link whose hub is near: the leaf server packs it all the same."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from backhaul_codec import Point, encode_frame
from tests.support.backlog import publish_bodies
from tests.support.rig.vehicle import vehicle

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.nats]

FRAMES = 600
# Subject, reply, header and the set-up of sources; 190 and more where nothing is packed.
BESIDE_BODY_MAX = 100
_AS_THEY_COME = "[frame]\npoints_max = 2\n"  # then every frame passes through as it is
_TIMEOUT_S = 60.0


async def test_messages_of_a_backlog_cost_little_beside_their_bodies(tmp_path: Path) -> None:
    chance = random.Random(1)
    frames = [
        encode_frame(
            [
                Point("cam", "shot", at * 1_000_000, chance.randbytes(100))
                for at in (number, number)
            ],
            epoch=0,
            seq=0,
        )
        for number in range(FRAMES)
    ]
    async with (
        vehicle(tmp_path, agent_settings=_AS_THEY_COME) as rig,
        rig.hub.connection() as hub,
        rig.device.connection() as leaf,
    ):
        await rig.sourced(hub)
        await rig.relay.cut()
        await publish_bodies(leaf, "cam", frames)
        last_seq = (await rig.appended(leaf))["lanes"]["bulk"]["last_seq"]
        before = rig.relay.up_bytes
        await rig.relay.heal()
        await rig.proved(hub, last_seq, _TIMEOUT_S)
        up_bytes = rig.relay.up_bytes - before
    beside = (up_bytes - sum(map(len, frames))) / FRAMES
    assert last_seq >= FRAMES
    assert 0 < beside < BESIDE_BODY_MAX

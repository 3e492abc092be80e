"""Hashes of what UP holds, looked up on a real server: the first message of a seq counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backhaul_codec import Point, chain, encode_frame, hash_of
from backhaul_hub.continuity.chain import Fork
from backhaul_hub.lane_records.block_store import BlockStore
from backhaul_hub.uplink.hashes import MessageHashes
from tests.hub.lossy_up import up
from tests.support.waiting import until

from .up_stream import DEVICE, LANE, STREAM, Up

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["up"]
pytestmark = [pytest.mark.nats]
SUBJECT = f"up.{DEVICE}.f.battery"


def frame(seq: int, value: float = 81.5, epoch: int = 7, link: bytes = b"") -> bytes:
    body = encode_frame([Point("battery", "soc", seq, value)], epoch=epoch, seq=seq)
    return chain(body, epoch=epoch, seq=seq, link=link) if link else body


def hex_of(message: bytes) -> str:
    return hash_of("f.battery", message).hex()


async def test_hashes_are_those_of_the_messages_and_of_what_is_not_there_none(up: Up) -> None:
    async with up.reading() as reader:
        await up.settles((1, 20))
        assert await reader.hashes.of(LANE, 1, 3) == [hex_of(frame(seq)) for seq in (1, 2, 3)]
        assert await reader.hashes.of(LANE, 20, 22) == [hex_of(frame(20)), None, None]
        assert await reader.hashes.of(LANE._replace(epoch=8), 1, 2) == [None, None]
        assert await reader.hashes.of(LANE._replace(lane="live"), 1, 1) == [None]


async def test_of_a_seq_that_stands_twice_the_first_message_counts(up: Up) -> None:
    async with up.reading() as reader:
        await up.settles((1, 20))
        await up.api.publish(SUBJECT, frame(7, value=1.0))
        await up.api.publish(SUBJECT, frame(7, value=1.0, epoch=8))
        await up.read_up_to(22)
        await up.settles((7, 7), lane=LANE._replace(epoch=8))
        assert await reader.hashes.of(LANE, 7, 7) == [hex_of(frame(7))]
        assert await reader.hashes.of(LANE._replace(epoch=8), 7, 7) == [hex_of(frame(7, 1.0, 8))]


async def test_what_up_has_lost_is_not_there_and_what_limits_took_cannot_be_told(up: Up) -> None:
    async with up.reading() as reader:
        await up.settles((1, 20))
        await up.api.request(f"STREAM.MSG.DELETE.{STREAM}", {"seq": 5})
        await up.poll()
        await up.settles((1, 4), (6, 20))
        assert await reader.hashes.of(LANE, 4, 6) == [hex_of(frame(4)), None, hex_of(frame(6))]
        await up.api.request(
            f"STREAM.UPDATE.{STREAM}",
            (await up.info())["config"] | {"max_age": 1_000_000_000, "duplicate_window": 10**9},
        )
        await up.empties()
        await up.poll()
        await until(lambda: up.state().aged.total == 19, "the limits' word")
        assert await reader.hashes.of(LANE, 4, 6) == ["", None, ""]


async def test_a_repeat_whose_hash_is_not_at_hand_is_compared_with_what_up_holds(up: Up) -> None:
    async with up.reading() as reader:
        await up.settles((1, 20))
        await up.api.publish(SUBJECT, frame(7))
        await up.read_up_to(21)
        await until(lambda: reader._judging is not None and reader._judging.done(), "judged")
        assert up.continuity.fork_of(LANE) is Fork.NONE
        before = reader._judging
        await up.api.publish(SUBJECT, frame(7, value=1.0))
        await up.read_up_to(22)
        await until(
            lambda: reader._judging not in (None, before) and reader._judging.done(), "judged again"
        )
        assert up.continuity.fork_of(LANE) is Fork.FORKED
        assert up.continuity.forks == [LANE]


async def test_another_message_behind_the_last_is_a_fork_by_its_link(
    nats_server: object, up: Up, tmp_path: Path
) -> None:
    async with up.reading():
        await up.settles((1, 20))
        await up.api.publish(SUBJECT, frame(21, link=hash_of("f.battery", frame(20))))
        await up.settles((1, 21))
        assert up.continuity.told_of(LANE).seq == 21
        await up.api.publish(SUBJECT, frame(22, link=hash_of("f.battery", frame(20))))
        await up.settles((1, 22))
        known = hash_of("f.battery", frame(21, link=hash_of("f.battery", frame(20))))
        assert up.continuity.told_of(LANE) == (21, known, Fork.FORKED)
    async with up.reading():  # a control plane that starts anew knows it still
        assert up.continuity.told_of(LANE) == (21, known, Fork.FORKED)


async def test_who_asks_about_a_lane_of_nobody_costs_no_look_at_up(up: Up) -> None:
    async with up.reading() as reader:
        nobody = MessageHashes(None, STREAM, up.continuity, BlockStore(up.registry, STREAM))  # type: ignore[arg-type]
        assert await nobody.of(LANE._replace(device="VID-009"), 1, 512) == [None] * 512
        assert reader.stream == STREAM

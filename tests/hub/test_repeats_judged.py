"""Repeats are compared with what the stream holds that they came by, whatever comes meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from backhaul_codec import Point, encode_frame
from backhaul_hub.continuity.chain import Fork
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.db.store import Registry
from backhaul_hub.nats.stream_reader import Stored
from backhaul_hub.uplink.dictionaries import Dictionaries
from backhaul_hub.uplink.intake import UplinkIntake
from backhaul_hub.uplink.reader import UplinkReader
from backhaul_hub.uplink.turns import take
from tests.support.hub_sync import FakeClock
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.client import Client

    from backhaul_hub.nats.jetstream import JetStreamApi
    from backhaul_hub.uplink.hashes import MessageHashes


class Looking:
    """Knows the hashes of one stream's devices, and answers when it is let."""

    def __init__(self, *devices: str) -> None:
        self.devices = devices
        self.asked: list[str] = []
        self.may = asyncio.Event()

    async def of(self, key: LaneKey, low: int, high: int) -> list[str | None]:
        self.asked.append(key.device)
        await self.may.wait()
        return ["ff" * 6 if key.device in self.devices else ""] * (high - low + 1)


class Shard:
    """A reader of one stream, without a server."""

    def __init__(self, number: int, intake: UplinkIntake, *own: str) -> None:
        none = cast("Client", None), cast("JetStreamApi", None)
        self.intake = intake
        self.reader = UplinkReader(f"UP_0{number}", *none, intake)
        self.reader.look_due = False
        self.looking = Looking(*own)
        self.reader.hashes = cast("MessageHashes", self.looking)
        self._stored = 0

    async def brings(self, device: str, *seqs: int) -> None:
        """Take in messages of a device's bulk lane in one batch."""
        found = []
        for seq in seqs:
            self._stored += 1
            body = encode_frame([Point("battery", "soc", seq, 81.5)], epoch=7, seq=seq)
            found.append(Stored(self._stored, f"up.{device}.f.battery", body, self._stored))
        await take(self.intake, [(self.reader, message) for message in found])


def fork_of(continuity: Continuity, device: str) -> Fork:
    return continuity.fork_of(LaneKey(device, "bulk", 7))


async def test_a_repeat_is_compared_by_the_reader_that_read_it(tmp_path: Path) -> None:
    continuity = Continuity()
    async with await Registry.open(tmp_path / "hub.db") as registry:
        dictionaries = Dictionaries(cast("JetStreamApi", None), registry, FakeClock())
        intake = UplinkIntake(continuity, registry, dictionaries)
        one = Shard(0, intake, "VID-001", "VID-002")
        other = Shard(1, intake, "VID-003")
        await one.brings("VID-001", 1, 2, 3, 2)
        await until(lambda: one.looking.asked == ["VID-001"])
        # While that is being compared, the next is found, and another shard brings something.
        await one.brings("VID-002", 1, 2, 3, 2)
        await other.brings("VID-003", 1, 2, 3, 2)
        await until(lambda: other.looking.asked == ["VID-003"])
        one.looking.may.set()
        other.looking.may.set()
        # Nothing comes after it.
        await until(lambda: fork_of(continuity, "VID-002") is Fork.FORKED, deadline_s=5.0)
        await until(lambda: fork_of(continuity, "VID-003") is Fork.FORKED)
        assert fork_of(continuity, "VID-001") is Fork.FORKED
        # Of each what came again, and what stands before it.
        assert one.looking.asked == ["VID-001"] * 2 + ["VID-002"] * 2
        assert other.looking.asked == ["VID-003"] * 2

"""Consumers of UP, on a real server: told in order, stored with the position, told again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from backhaul_codec import Point, encode_frame
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.devices import read_devices
from backhaul_hub.db.store import Registry
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.uplink.dictionaries import Dictionaries
from backhaul_hub.uplink.intake import UplinkIntake
from backhaul_hub.uplink.reader import UplinkReader
from backhaul_hub.uplink.turns import UplinkTurns
from tests.support.hub_sync import FakeClock
from tests.support.rig import patient
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from backhaul_codec.wire.expansion import Expansion
    from backhaul_hub.continuity.examine import Examined
    from tests.support.nats_server import NatsServer

pytestmark = pytest.mark.nats


class Recorder:
    """Writes down what it is told, in hub.db too."""

    def __init__(self) -> None:
        self.told: list[tuple[LaneKey, int, str, bool]] = []
        self.stored_told = 0
        self._waiting: list[tuple[str, str, str, int]] = []

    def on_message(self, said: Examined, is_new: bool) -> None:
        self.told.append((said.key, said.seq, said.uplink.leaf_subject, is_new))
        number = len(self.told)
        self._waiting.append((f"{said.uplink.device}-{number}", str(number), "", said.seq))

    def take_changes(self) -> Sequence[RowChange]:
        rows, self._waiting = self._waiting, []
        return [RowChange("INSERT INTO device VALUES (?, ?, ?, ?)", rows)]

    def stored(self) -> None:
        self.stored_told = len(self.told)


async def test_a_consumer_hears_of_good_messages_and_its_rows_are_stored(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with await Registry.open(tmp_path / "hub.db") as registry:
        client = await patient.connect(nats_server.url)
        api = JetStreamApi(client)
        for name, subjects in (("UP_00", "up.>"), ("QUARANTINE", "quarantine.>")):
            stream = {"name": name, "subjects": [subjects], "allow_direct": True}
            await api.request(f"STREAM.CREATE.{name}", stream)
        frame = b""
        for seq in (1, 2, 2):
            frame = encode_frame([Point("battery", "soc", 1, 81.5)], epoch=7, seq=seq)
            await api.publish("up.VID-001.f.battery", frame)
        await api.publish("up.VID-002.f.battery", b"garbage")
        recorder, unreadable = Recorder(), list[str]()
        expanded: list[tuple[str, Expansion, int, int]] = []
        intake = UplinkIntake(
            *(Continuity(), registry, Dictionaries(api, registry, FakeClock()), [recorder]),
            unreadable=unreadable.append,
            expanded=lambda *said: expanded.append(said),
        )
        reader = UplinkReader("UP_00", client, api, intake)
        task = asyncio.create_task(UplinkTurns(client, intake, [reader]).run())
        await until(lambda: reader.position.seq == 4 and recorder.stored_told == 3)
        task.cancel()
        await asyncio.wait([task])
        await client.close()
        key = LaneKey("VID-001", "bulk", 7)
        assert unreadable == ["VID-002"]
        assert [(device, each.points, size) for device, each, size, _ in expanded] == [
            ("VID-001", 1, len(frame))
        ] * 3
        assert recorder.told == [
            (key, 1, "f.battery", True),
            (key, 2, "f.battery", True),
            (key, 2, "f.battery", False),
        ]
        assert list(await read_devices(registry)) == ["VID-001-1", "VID-001-2", "VID-001-3"]

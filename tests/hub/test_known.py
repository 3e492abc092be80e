"""What the hub says of a ledger's epochs: nothing, before it has read all that UP holds."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.errors import JetStreamError
from backhaul_hub.links.clock_service import EPOCHS_MAX, ClockService
from backhaul_hub.uplink.known_epochs import WAIT_S_MAX, Known
from tests.hub.clock_wire import TOKENS, HubClock, Wire


class Scene:
    """A hub that has read `read` of the `last` messages in UP."""

    def __init__(self, read: int = 10, last: int = 10, *, caught_up: bool = True) -> None:
        self.continuity = Continuity()
        self.clock = HubClock()
        self.reader = SimpleNamespace(
            stream="UP_00", caught_up=caught_up, position=SimpleNamespace(seq=read), hashes=self
        )
        self.last = last
        self.error: Exception | None = None
        reader_of: Any = lambda _: self.reader
        self.known = Known(self, self.continuity, self.clock, reader_of)  # type: ignore[arg-type]

    async def of(self, key: LaneKey, low: int, high: int) -> list[str | None]:
        """Say the hashes of messages, as UP has them."""
        return [f"{seq:012x}" for seq in range(low, high + 1)]

    async def info(self, stream: str) -> Any:
        assert stream == "UP_00"
        if self.error:
            raise self.error
        return {"state": {"last_seq": self.last}}

    def arrived(self, lane: str, epoch: int, *seqs: int) -> None:
        for seq in seqs:
            self.continuity.arrived(LaneKey("VID-001", lane, epoch), seq, 10, 1)


async def test_the_highest_seq_and_the_watermark_of_each_lane() -> None:
    it = Scene()
    it.arrived("bulk", 7, 1, 2, 5)
    it.arrived("live", 7, 1)
    it.continuity.say(LaneKey("VID-001", "live", 7), 9)
    it.arrived("bulk", 8, 3)
    assert await it.known.of("VID-001", [7, 9]) == {7: {"bulk": (5, 2), "live": (9, 1)}, 9: {}}


async def test_a_lane_that_makes_room_while_hashes_are_looked_up_is_not_said() -> None:
    it = Scene()
    it.arrived("bulk", 7, 1, 2)
    it.arrived("live", 7, 1)
    for state in it.continuity.lanes.values():
        state.chain.ends.clear()
    look = it.of

    async def forgetting(key: LaneKey, low: int, high: int) -> list[str | None]:
        it.continuity.lanes.pop(key._replace(lane="live"), None)
        return await look(key, low, high)

    it.reader.hashes = SimpleNamespace(of=forgetting)
    assert await it.known.ends("VID-001", [7]) == {7: {"bulk": ("000000000002", 0)}}


async def test_nothing_is_said_before_all_is_read() -> None:
    it = Scene(read=9)
    waiting = asyncio.create_task(it.known.of("VID-001", [7]))
    await asyncio.sleep(0)
    it.clock.s += WAIT_S_MAX
    assert await waiting is None
    it = Scene(caught_up=False)
    it.clock.monotonic_s = iter([0.0, WAIT_S_MAX]).__next__  # type: ignore[method-assign]
    assert await it.known.of("VID-001", [7]) is None


async def test_what_is_read_in_time_is_waited_for() -> None:
    it = Scene(read=9)
    waiting = asyncio.create_task(it.known.of("VID-001", [7]))
    await asyncio.sleep(0)
    it.arrived("bulk", 7, 1)
    it.reader.position.seq = 10
    assert await waiting == {7: {"bulk": (1, 1)}}


async def test_without_a_reader_or_a_server_nothing_is_said() -> None:
    it = Scene()
    it.error = JetStreamError("UP_00", 503, "no answer")
    assert await it.known.of("VID-001", [7]) is None
    none: Any = lambda _: None
    known = Known(it, it.continuity, it.clock, none)  # type: ignore[arg-type]
    assert await known.of("VID-001", [7]) is None


async def test_the_answer_goes_with_the_time() -> None:
    it, wire = Scene(), Wire()
    it.arrived("bulk", 7, 1, 2)
    service = ClockService(wire, it.clock, TOKENS.get, it.known)  # type: ignore[arg-type]
    await service.listen(wire)  # type: ignore[arg-type]
    await wire.question("VID-001", b'{"t1": 1, "epochs": [7]}')
    await wire.question("VID-001", b'{"t1": 2}')
    await wire.question("VID-001", json.dumps({"t1": 3, "epochs": [7] * (EPOCHS_MAX + 1)}).encode())
    while len(wire.sent) < 2:  # noqa: ASYNC110 - a task of the service
        await asyncio.sleep(0)
    said = {body["t1"]: body.get("epochs") for _, body in wire.sent}
    assert said == {1: {"7": {"bulk": [2, 2]}}, 2: None}
    chain = {body["t1"]: body.get("chain") for _, body in wire.sent}
    assert chain == {1: {"7": {"bulk": ["000000000002", 0]}}, 2: None}
    assert service.refused == 1

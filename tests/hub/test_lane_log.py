"""The log of turns: whenever its lanes and blocks go into rows, hub.db says the same.

Streams are drawn with repeats, holes, new epochs that make room, rollbacks and restarts; once each turn goes into
rows, as before there was a log, once by a drawn rhythm. Not covered here: what a server's stream loses (test_losses.py).
"""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from backhaul_codec import Point, encode_frame
from backhaul_hub.continuity import blocks, lane_book
from backhaul_hub.continuity.blocks import StreamState
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.continuity.lane_log import Fold, LaneFolding
from backhaul_hub.db.store import Registry
from backhaul_hub.lane_records.block_store import BlockStore
from backhaul_hub.lane_records.lane_rows import read_lanes
from backhaul_hub.lane_records.log_into_rows import put_log_into_rows
from backhaul_hub.nats.stream_reader import Stored
from backhaul_hub.uplink.audit import AuditFindings
from backhaul_hub.uplink.dictionaries import Dictionaries
from backhaul_hub.uplink.intake import UplinkIntake
from backhaul_hub.uplink.reader import UplinkReader
from backhaul_hub.uplink.turns import take
from tests.support.hub_sync import FakeClock

from .up_stream import AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from nats.aio.client import Client

    from backhaul_hub.nats.jetstream import JetStreamApi

STREAMS = ("UP_00", "UP_01")
DEVICES = ("VID-001", "VID-002", "VID-003")
BLOCK, EPOCHS = 6, 2
Op = tuple[Any, ...]
Said = dict[str, object]

message = st.tuples(
    st.sampled_from(range(2)),
    st.sampled_from(DEVICES),
    st.sampled_from((7, 7, 7, 8, 9, 10)),
    st.integers(1, 6),
)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("turn"), st.lists(message, min_size=1, max_size=9)),
        st.tuples(st.just("start")),
        st.tuples(st.just("rows")),
        st.tuples(st.just("garbage"), st.sampled_from(range(2))),
        st.tuples(st.just("lost"), st.sampled_from(range(2)), st.integers(0, 3)),
        st.tuples(st.just("aged"), st.sampled_from(range(2)), st.integers(0, 3)),
    ),
    min_size=1,
    max_size=14,
)


@pytest.fixture(scope="module")
def small() -> Iterator[None]:
    """Have short blocks, and lanes that make room at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_MESSAGES", BLOCK)
        patch.setattr(lane_book, "EPOCHS_MAX", EPOCHS)
        patch.setattr(lane_book, "FORGOTTEN_AFTER_NS", 0)
        yield


class Finder:
    """Finds in a stream what it was told to."""

    def __init__(self, finding: AuditFindings) -> None:
        self.finding = finding

    async def look(self, _: object) -> tuple[StreamState, AuditFindings]:
        return StreamState("t", 1, 0, 0, 0, 0, -1, 0), self.finding

    def taken_in(self, _: object) -> None:
        pass


class ControlPlane:
    """The readers of two streams over one hub.db; nobody is asked, all messages are given."""

    def __init__(self, registry: Registry, folding: Callable[[], LaneFolding]) -> None:
        self.registry, self.folding = registry, folding

    async def start(self) -> None:
        self.continuity = Continuity()
        self.continuity.restore(await read_lanes(self.registry))
        none = cast("Client", None), cast("JetStreamApi", None)
        dictionaries = Dictionaries(none[1], self.registry, FakeClock())
        intake = self.intake = UplinkIntake(
            self.continuity, self.registry, dictionaries, folding=self.folding()
        )
        self.readers = [UplinkReader(stream, *none, intake) for stream in STREAMS]
        for reader in self.readers:
            await reader.begin()
            reader.judge_repeats = lambda: None  # type: ignore[method-assign]
            reader.look_due = False

    async def rows(self) -> None:
        """Stop, have everything put into rows, and start again."""
        await put_log_into_rows(self.registry)
        await self.start()

    async def turn(self, messages: Sequence[tuple[int, str, int, int]]) -> None:
        at = [reader.position.seq for reader in self.readers]
        joint = []
        for number, device, epoch, seq in messages:
            at[number] += 1
            body = encode_frame([Point("battery", "soc", seq, 81.5)], epoch=epoch, seq=seq)
            stored = Stored(at[number], f"up.{device}.f.battery", body, at[number])
            joint.append((self.readers[number], stored))
        await take(self.intake, joint)

    async def garbage(self, number: int) -> None:
        reader = self.readers[number]
        reader.set_aside = nobody  # type: ignore[method-assign, assignment]
        at = reader.position.seq + 1
        await take(self.intake, [(reader, Stored(at, "up.VID-001.f.battery", b"?", at))])

    async def finds(self, number: int, finding: AuditFindings) -> None:
        reader = self.readers[number]
        reader._audit = cast("Any", Finder(finding))
        await reader.recover()

    async def lost(self, number: int, blocks_lost: int) -> None:
        """The newest blocks are gone: it reads on behind those that stayed."""
        reader = self.readers[number]
        known = await BlockStore(self.registry, reader.stream, self.intake.blocks).blocks()
        kept, gone = known[: len(known) - blocks_lost], known[len(known) - blocks_lost :]
        seq = kept[-1].high if kept else 0
        position = replace(reader.position, seq=seq, stored_ns=seq)
        numbers = [each.number for each in gone]
        await self.finds(number, AuditFindings(position, ["rolled_back"], gone=numbers))

    async def aged(self, number: int, below: int) -> None:
        reader = self.readers[number]
        position = replace(reader.position, first_seq=below * BLOCK)
        await self.finds(number, AuditFindings(position, aged=list(range(below))))

    async def says(self) -> Said:
        """Return all that hub.db says, in the running control plane and as the next one reads it."""
        found: Said = {"lanes": self.continuity.lanes, "stored": await read_lanes(self.registry)}
        for device in DEVICES:
            found[device] = await read_lanes(self.registry, device)
        found["blocks"] = await self.blocks()
        await self.start()
        return {**found, "again": self.continuity.lanes, "blocks again": await self.blocks()}

    async def blocks(self) -> list[object]:
        found: list[object] = []
        for reader in self.readers:
            store = BlockStore(self.registry, reader.stream, self.intake.blocks)
            known = await store.blocks()
            found += known
            for block in known:
                lanes = await store.lanes_in([block.number])
                found.append({key: ranges for key, ranges in lanes.items() if ranges})
            for key in sorted(self.continuity.lanes):
                found += [await store.elsewhere(key, {1}), await store.places(key)]
        return found


async def nobody(_: object) -> None:
    """Copy nothing to QUARANTINE."""


async def run(operations: Sequence[Op], folding: Callable[[], LaneFolding]) -> Said:
    with tempfile.TemporaryDirectory() as directory:
        async with await Registry.open(Path(directory) / "hub.db") as registry:
            await registry.fetch("PRAGMA synchronous = OFF")
            control = ControlPlane(registry, folding)
            await control.start()
            for name, *values in operations:
                await getattr(control, name)(*values)
            return await control.says()


def test_a_fold_begins_with_many_lanes_or_many_bytes_and_ends_behind_its_beginning() -> None:
    folding, key = LaneFolding(lanes_min=4, turns=2, bytes_max=100), LaneKey("VID-001", "bulk", 7)
    keys = [key._replace(epoch=epoch) for epoch in (9, 8, 7)]
    folding.note(1, 50, keys, ["UP_00"])
    assert folding.next(lanes=3) == Fold()
    folding.note(2, 50, keys[:1], [])
    assert folding.next(lanes=3) == Fold([keys[2], keys[1]], ["UP_00"])
    folding.note(3, 10, keys[:1], [])
    assert folding.next(lanes=3) == Fold([keys[0]], [], 2), "the third turn stays in the log"
    folding.note(4, 89, [], [])
    assert folding.next(lanes=3) == Fold()
    folding.note(5, 1, [], [])
    assert folding.next(lanes=3) == Fold([keys[0]], [], 5), "it has many bytes"


async def test_nothing_stands_in_the_log_once_it_is_put_into_rows(tmp_path: Path) -> None:
    async with await Registry.open(tmp_path / "hub.db") as registry:
        control = ControlPlane(registry, LaneFolding)
        await control.start()
        await control.turn([(0, device, 7, 1) for device in DEVICES])
        assert await registry.fetch("SELECT * FROM lane") == []
        await control.rows()
        assert await registry.fetch("SELECT * FROM lane_log") == []
        rows = await registry.fetch("SELECT device FROM block_lane ORDER BY device")
        assert [device for (device,) in rows] == list(DEVICES)


@given(operations, st.integers(1, 30), st.integers(1, 4))
# A lane makes room in a turn that stands in the log alone, and so do its messages in an open block.
@example(
    [("turn", [(0, DEVICES[0], 7, 1), (0, DEVICES[0], 8, 1)]), ("turn", [(0, DEVICES[0], 9, 1)])],
    30,
    1,
)
# The open block is lost that the log has told of.
@example(
    [("turn", [(0, DEVICES[0], 7, 1)]), ("lost", 0, 1), ("turn", [(0, DEVICES[0], 8, 1)])], 30, 1
)
@settings(max_examples=50)
@pytest.mark.usefixtures("small")
def test_whenever_it_goes_into_rows_hub_db_says_the_same(
    operations: list[Op], lanes_min: int, turns: int
) -> None:
    expected = asyncio.run(run(operations, AT_ONCE))
    assert expected["lanes"] == expected["stored"] == expected["again"]
    assert asyncio.run(run(operations, lambda: LaneFolding(lanes_min, turns))) == expected

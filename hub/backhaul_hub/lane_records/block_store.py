"""The blocks of UP in hub.db: rows to write with a read position, and questions about them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from backhaul_codec.ranges import RangeSet
from backhaul_hub.continuity.blocks import Block, BlockContent, OpenBlocks
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.store import Registry

_PUT_BLOCK = (
    "INSERT INTO block VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET low = excluded.low,"
    " high = excluded.high, high_ns = excluded.high_ns, messages = excluded.messages,"
    " grains = excluded.grains"
)
_PUT_LANE = (
    "INSERT INTO block_lane VALUES (?, ?, ?, ?, ?, ?)"
    " ON CONFLICT DO UPDATE SET ranges = excluded.ranges"
)
_BLOCKS_OF = (
    "SELECT number, low, high, ranges FROM block_lane JOIN block USING (stream, number)"
    " WHERE stream = ? AND device = ? AND lane = ? AND epoch = ?"
)


class BlockStore:
    """The blocks of one stream.

    Args:
        stream: the UP stream.
        opened: blocks that are being read: their rows may be of before.
    """

    def __init__(self, registry: Registry, stream: str, opened: OpenBlocks | None = None) -> None:
        self._registry = registry
        self._stream = stream
        self._opened = opened or OpenBlocks()
        self._log = self._opened.of(stream)

    async def blocks(self, first: int = 0, last: int = 1 << 62) -> list[Block]:
        """Return the blocks `first` to `last`, without lanes, ascending.

        Raises:
            RegistryError: the database refused.
        """
        rows = await self._registry.fetch(
            "SELECT number, low, high, high_ns, messages, grains FROM block"
            " WHERE stream = ? AND number BETWEEN ? AND ? ORDER BY number",
            (self._stream, first, last),
        )
        found = {
            number: Block(
                number, low, high, high_ns, messages, msgspec.json.decode(grains, type=list[int])
            )
            for number, low, high, high_ns, messages, grains in rows
        }
        for number, content in self._log.contents().items():
            if first <= number <= last:
                found[number] = content.block
        return [found[number] for number in sorted(found)]

    async def content(self, number: int) -> BlockContent | None:
        """Return a block with its lanes, None where there is none of that number.

        Raises:
            RegistryError: the database refused.
        """
        if number in self._log.contents():
            return self._log.contents()[number]
        for block in await self.blocks(number, number):
            return BlockContent(block, await self.lanes_in([number]))
        return None

    async def lanes_in(self, numbers: Iterable[int]) -> dict[LaneKey, RangeSet]:
        """Return which seqs of which lanes stand in these blocks.

        Raises:
            RegistryError: the database refused.
        """
        found: dict[LaneKey, RangeSet] = {}
        for number in numbers:
            if number in self._log.contents():
                for key, seqs in self._log.contents()[number].lanes.items():
                    _add(found.setdefault(key, RangeSet()), seqs)
                continue
            rows = await self._registry.fetch(
                "SELECT device, lane, epoch, ranges FROM block_lane"
                " WHERE stream = ? AND number = ?",
                (self._stream, number),
            )
            for device, lane, epoch, ranges in rows:
                key = LaneKey(device, lane, epoch)
                _add(found.setdefault(key, RangeSet()), _ranges(ranges))
        return found

    async def elsewhere(self, key: LaneKey, numbers: Collection[int]) -> RangeSet:
        """Return the seqs of a lane that stand in any stream's blocks but these of this stream.

        Raises:
            RegistryError: the database refused.
        """
        rows = await self._registry.fetch(
            "SELECT stream, number, ranges FROM block_lane"
            " WHERE device = ? AND lane = ? AND epoch = ?",
            tuple(key),
        )
        found = RangeSet()
        for stream, number, ranges in rows:
            if stream != self._stream or number not in numbers:
                _add(found, _ranges(ranges))
        for stream, log in self._opened.logs.items():
            for number, content in log.contents().items():
                if stream != self._stream or number not in numbers:
                    _add(found, content.lanes.get(key, RangeSet()))
        return found

    async def places(self, key: LaneKey) -> list[tuple[Block, RangeSet]]:
        """Return the blocks of this stream in which a lane stands with its seqs there, ascending.

        Raises:
            RegistryError: the database refused.
        """
        rows = await self._registry.fetch(_BLOCKS_OF, (self._stream, *key))
        found = {row[0]: (Block(*row[:3]), _ranges(row[3])) for row in rows}
        for number, content in self._log.contents().items():
            if key in content.lanes:
                found[number] = content.block, content.lanes[key]
        return [found[number] for number in sorted(found)]

    def put(self, blocks: Iterable[tuple[Block, Mapping[LaneKey, RangeSet]]]) -> list[RowChange]:
        """Return the statements that write these blocks, and of their lanes those that are given."""
        return put_blocks({self._stream: blocks})

    def drop(self, numbers: Iterable[int]) -> list[RowChange]:
        """Return the statements that delete these blocks."""
        rows = [(self._stream, number) for number in numbers]
        return [
            RowChange("DELETE FROM block WHERE stream = ? AND number = ?", rows),
            RowChange("DELETE FROM block_lane WHERE stream = ? AND number = ?", rows),
        ]


def put_blocks(
    of: Mapping[str, Iterable[tuple[Block, Mapping[LaneKey, RangeSet]]]],
) -> list[RowChange]:
    """Return the statements that write blocks by stream, and of their lanes those that are given."""
    block_rows, lane_rows = [], []
    for stream, blocks in of.items():
        for block, lanes in blocks:
            grains = msgspec.json.encode(block.grains).decode()
            numbers = (block.number, block.low, block.high, block.high_ns, block.messages)
            block_rows.append((stream, *numbers, grains))
            # In the order of the table, whose pages hold many of them.
            lane_rows += [
                (stream, block.number, *key, msgspec.json.encode(list(lanes[key])).decode())
                for key in sorted(lanes)
            ]
    return [RowChange(_PUT_BLOCK, block_rows), RowChange(_PUT_LANE, lane_rows)]


def forget_lanes(keys: Iterable[LaneKey]) -> list[RowChange]:
    """Return the statements that delete all rows of these lanes."""
    rows = [tuple(key) for key in keys]
    where = "WHERE device = ? AND lane = ? AND epoch = ?"
    return [
        RowChange(f"DELETE FROM lane {where}", rows),  # noqa: S608 - two constants
        RowChange(f"DELETE FROM block_lane {where}", rows),  # noqa: S608
    ]


def _ranges(text: str) -> RangeSet:
    return RangeSet(msgspec.json.decode(text, type=list[tuple[int, int]]))


def _add(ranges: RangeSet, more: RangeSet) -> None:
    for low, high in more:
        ranges.add(low, high)

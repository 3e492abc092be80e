"""The rows of hub.db that are about a device: counted, deleted, and the record of UP brought in line with the messages left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from backhaul_hub.continuity.blocks import block_of
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.store import Registry
from backhaul_hub.device import FLEET
from backhaul_hub.lane_records.block_store import BlockStore
from backhaul_hub.lane_records.lane_rows import ReadPosition, read_lanes, read_position
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.nats.stream_reader import Stored, StoredReader

# These say that it was erased, and whom servers shut out for that.
_STAYS = frozenset({"erasure"})
_READ_MESSAGES = 512
# Beside the tables with a column of that name.
_ABOUT = {
    "device": "id = ?1",
    "head": f"device = ?1 OR device = '{FLEET}' AND ?1 IN (node, parent)",
    "conflict": f"device = ?1 OR device = '{FLEET}' AND ?1 IN (node, parent)",
    "alert_told": "alert IN (SELECT id FROM alert WHERE device = ?1)",
    "alert_notice": "alert IN (SELECT id FROM alert WHERE device = ?1)",
    "alert_silence": "place = ?1",
}


async def counted(registry: Registry, device: str) -> dict[str, int]:
    """Return how many rows of each table are about a device. Raises: RegistryError."""
    found = {}
    for table, where in (await _about(registry)).items():
        query = f"SELECT count(*) FROM {table} WHERE {where}"  # noqa: S608 - of the schema
        [(count,)] = await registry.fetch(query, (device,))
        if count:
            found[table] = count
    # Some may stand in the log of turns alone.
    lanes = len(await read_lanes(registry, device))
    return found | ({"lane": lanes} if lanes else {})


async def deletions(registry: Registry, device: str) -> list[RowChange]:
    """Return the statements that delete all rows about a device. Raises: RegistryError."""
    return [
        RowChange(f"DELETE FROM {table} WHERE {where}", [(device,)])  # noqa: S608 - of the schema
        for table, where in (await _about(registry)).items()
    ]


async def _about(registry: Registry) -> dict[str, str]:
    """Return by table which rows are about the device ?1, alerts after the rows that belong to them."""
    tables = await registry.fetch(
        "SELECT m.name FROM sqlite_master m JOIN pragma_table_info(m.name) c"
        " WHERE m.type = 'table' AND c.name = 'device' ORDER BY m.name"
    )
    plain = {table: "device = ?1" for (table,) in tables if table not in _STAYS}
    every = plain | _ABOUT
    # What is found by the rows of another table goes before these.
    return dict(sorted(every.items(), key=lambda each: "SELECT" not in each[1]))


async def first_of(registry: Registry, device: str) -> int:
    """Return the time (ns) of a device's first mark, or of the first hour imported of it; 0: neither. Raises: RegistryError."""
    rows = await registry.fetch(
        "SELECT min(time_ns) FROM mark WHERE device = ?1"
        " UNION ALL SELECT min(hour) FROM import_hour WHERE device = ?1",
        (device,),
    )
    return min((row[0] for row in rows if row[0]), default=0)


class Settling:
    """Brings the record of one stream of UP in line after messages were deleted on purpose, so that no audit takes it for a loss.

    Args:
        reader: of the stream.
        first_before: the stream's first sequence before.
    """

    def __init__(
        self, registry: Registry, api: JetStreamApi, reader: StoredReader, first_before: int
    ) -> None:
        self._registry = registry
        self._api = api
        self._reader = reader
        self._first_before = first_before
        self._stream = reader.stream
        self._blocks = BlockStore(registry, reader.stream)

    async def changes(self, deleted: Sequence[int]) -> list[RowChange]:
        """Return the statements, given the sequences that were deleted. Raises: HubError."""
        if not deleted:
            return []
        position = await read_position(self._registry, self._stream)
        info = await self._api.info(self._stream)
        first = info["state"]["first_seq"]
        gone, read = set(deleted), [seq for seq in deleted if seq <= position.seq]
        rows, empty = list[tuple[int, int, int, int, str, int]](), list[int]()
        for number, count in Counter(map(block_of, read)).items():
            for block in await self._blocks.blocks(number, number):
                last = await self._last(block.low, block.high) if block.high in gone else None
                if block.messages <= count or (block.high in gone and last is None):
                    empty.append(number)
                    continue
                high, high_ns = (last.seq, last.stored_ns) if last else (block.high, block.high_ns)
                low = first if block.low in gone and block.low < first <= high else block.low
                rows.append((block.messages - count, low, high, high_ns, self._stream, number))
        update = "UPDATE block SET messages = ?, low = ?, high = ?, high_ns = ? WHERE stream = ? AND number = ?"
        return [
            *self._blocks.drop(empty),
            RowChange(update, rows),
            await self._moved(position, gone, first, dict(_highs(rows))),
        ]

    async def _moved(
        self, position: ReadPosition, gone: set[int], first: int, highs: dict[int, tuple[int, int]]
    ) -> RowChange:
        """Return the statement that has the reading go on behind a message that is there still."""
        if position.seq in gone:
            found = highs.get(block_of(position.seq))
            if found is None:
                blocks = await self._blocks.blocks(last=block_of(position.seq) - 1)
                found = next(
                    (
                        highs.get(block.number, (block.high, block.high_ns))
                        for block in reversed(blocks)
                        if block.number in highs or block.high not in gone
                    ),
                    None,
                )
            # Where nothing is left of what was read, the stream begins behind it, and no time is compared.
            if found is not None:
                position = replace(position, seq=found[0], stored_ns=found[1])
        if (
            self._first_before == position.first_seq
        ):  # else others' messages have aged: the audit's to see
            position = replace(position, first_seq=first)
        return RowChange(
            "UPDATE position SET seq = ?, stored_ns = ?, first_seq = ? WHERE stream = ?",
            [(position.seq, position.stored_ns, position.first_seq, self._stream)],
        )

    async def _last(self, low: int, high: int) -> Stored | None:
        """Return the last message that is there still of some sequences."""
        window = 64
        end = high
        while end >= low:
            begin = max(low, end - window + 1)
            found = [each for each in await self._reader.read(begin, window) if each.seq <= end]
            if found:
                return found[-1]
            end, window = begin - 1, min(_READ_MESSAGES, 2 * window)
        return None


def _highs(
    rows: Sequence[tuple[int, int, int, int, str, int]],
) -> list[tuple[int, tuple[int, int]]]:
    return [(number, (high, high_ns)) for _, _, high, high_ns, _, number in rows]

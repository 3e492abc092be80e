"""Puts the log of turns into rows, for callers that change rows while no reader of UP runs."""

from __future__ import annotations

from backhaul_hub.continuity.blocks import OpenBlocks, block_of
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.continuity.lane_log import blocks_in
from backhaul_hub.db.store import Registry
from backhaul_hub.lane_records.block_store import BlockStore, put_blocks
from backhaul_hub.lane_records.lane_rows import (
    forget_turns,
    read_lanes,
    read_position,
    read_turns,
    store_positions,
)


async def put_log_into_rows(registry: Registry) -> None:
    """Empty the log into the rows of lanes and blocks. No reader of UP may run.

    Raises:
        RegistryError: the database refused; all is as before.
    """
    turns = await read_turns(registry)
    if not turns:
        return
    lanes, opened = await read_lanes(registry), OpenBlocks()
    for stream, blocks in blocks_in(turn for *_, turn in turns).items():
        number = block_of((await read_position(registry, stream)).seq)
        newest = opened.of(stream)
        newest.replace(await BlockStore(registry, stream).content(number))
        for each in blocks:
            # Those before it have all their rows: a block that another one follows is put at once.
            if each.number == number:
                newest.catch_up(each.block, each.added)
    changed = {LaneKey(*row[:3]) for *_, turn in turns for row in turn.lanes}
    put = put_blocks({stream: log.take_changes() for stream, log in opened.logs.items()})
    last, *_ = turns[-1]
    await store_positions(
        *(registry, {}, {key: lanes[key] for key in changed if key in lanes}),
        [*put, forget_turns(last)],
    )

"""Blocks: what was read of which part of a stream, and whether its limits explain what is gone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_codec.ranges import RangeSet
from backhaul_hub.continuity.blocks import (
    BLOCK_MESSAGES,
    GRAIN_MESSAGES,
    Block,
    BlockLog,
    StreamState,
    block_of,
    limits_explain,
)
from backhaul_hub.continuity.lane_key import LaneKey

LANE = LaneKey("VID-001", "bulk", 7)
SECOND_NS = 10**9
MIB = 1 << 20


def read(first: int, last: int, step_ns: int = SECOND_NS) -> list[Block]:
    """Read a stream in which every sequence took `step_ns` longer than the one before."""
    log, blocks = BlockLog(), dict[int, Block]()
    for seq in range(first, last + 1):
        log.add(seq, seq * step_ns, (LANE, seq))
        if seq % 1000 == 0 or seq == last:
            blocks |= {block.number: block for block, _ in log.take_changes()}
    return list(blocks.values())


@given(
    st.lists(st.tuples(st.integers(1, 3 * BLOCK_MESSAGES), st.integers(1, 50)), max_size=60),
    st.integers(1, 9),
)
def test_blocks_say_what_is_in_them_however_it_was_stored(
    messages: list[tuple[int, int]], batch: int
) -> None:
    by_seq = dict(sorted(messages))
    log, stored, counts = BlockLog(), dict[int, RangeSet](), dict[int, int]()
    for number, (stream_seq, seq) in enumerate(by_seq.items(), 1):
        log.add(stream_seq, stream_seq, (LANE, seq))
        if number % batch == 0 or number == len(by_seq):
            for block, lanes in log.take_changes():
                counts[block.number] = block.messages
                if LANE in lanes:
                    stored[block.number] = RangeSet(lanes[LANE])
    for number, ranges in stored.items():
        inside = {seq for stream_seq, seq in by_seq.items() if block_of(stream_seq) == number}
        assert {seq for low, high in ranges for seq in range(low, high + 1)} == inside
    assert sum(counts.values()) == len(by_seq)
    assert log.take_changes() == []


def test_a_block_goes_on_where_it_was_left_off() -> None:
    first = BlockLog()
    first.add(5, 50, (LANE, 1))
    ((block, lanes),) = first.take_changes()
    from backhaul_hub.continuity.blocks import BlockContent

    again = BlockLog(BlockContent(block, dict(lanes)))
    again.add(7, 70, (LANE, 2))
    again.add(8, 80, None)  # garbage has no place in a lane
    ((block, lanes),) = again.take_changes()
    assert (block.low, block.high, block.high_ns, block.messages) == (5, 8, 80, 3)
    assert block.absent == 1
    assert lanes == {LANE: RangeSet([(1, 2)])}


STATE = StreamState("t", 1, 0, 0, 0, 0, -1, 0)


def explained(first_seq: int, now_s: int, *, age_s: int = 0, bytes_max: int = -1) -> bool:
    """Ask of a stream that was read from 1 to 20,000, a message a second."""
    state = replace(
        STATE,
        first_seq=first_seq,
        last_seq=20_000,
        stored_bytes=100 * MIB,
        age_ns_max=age_s * SECOND_NS,
        bytes_max=bytes_max,
        now_ns=now_s * SECOND_NS,
    )
    blocks = [block for block in read(1, 20_000) if block.low < first_seq]
    return limits_explain(state, blocks)


@pytest.mark.parametrize("first_seq", [2, 300, 8192, 8193, 10_000, 20_000, 20_001])
def test_age_explains_what_is_old_enough_and_no_purge(first_seq: int) -> None:
    aged_at_s = first_seq - 1 + 3600
    assert explained(first_seq, aged_at_s, age_s=3600)
    assert explained(first_seq, aged_at_s + 10_000, age_s=3600)
    # ... a purge that took more than age would have, beyond the 256 that are told apart
    assert not explained(first_seq, aged_at_s - GRAIN_MESSAGES - 10, age_s=3600)


def test_a_purge_of_everything_is_told_exactly() -> None:
    assert not explained(20_001, 20_000 + 3600 - 10, age_s=3600)
    assert explained(20_001, 20_000 + 3600, age_s=3600)


def test_size_explains_while_the_stream_is_full() -> None:
    assert explained(10_000, 20_000, bytes_max=101 * MIB)
    assert not explained(10_000, 20_000, bytes_max=110 * MIB)


def test_a_stream_without_limits_loses_nothing_by_itself() -> None:
    assert not explained(2, 20_000)
    assert limits_explain(replace(STATE, first_seq=9), [])


@given(st.integers(1, 20_001), st.integers(0, 30_000))
def test_what_age_took_is_never_called_lost(first_seq: int, more_s: int) -> None:
    assert explained_by_age(first_seq, more_s)


BLOCKS = read(1, 20_000)


def explained_by_age(first_seq: int, more_s: int) -> bool:
    state = replace(
        STATE,
        first_seq=first_seq,
        age_ns_max=60 * SECOND_NS,
        now_ns=(first_seq - 1 + 60 + more_s) * SECOND_NS,
    )
    return limits_explain(state, [block for block in BLOCKS if block.low < first_seq])

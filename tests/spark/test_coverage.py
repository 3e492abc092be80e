"""New or repeat, against a plain model: a set of identities."""

from __future__ import annotations

import pyarrow as pa  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from backhaul_codec.ranges import RangeSet
from backhaul_spark.ingest.coverage import Coverage, LaneKey, merge_rows
from backhaul_spark.tables.part_writer import MESSAGE_FACTS
from backhaul_spark.tables.schemas import COVERAGE_TABLE

Fact = tuple[str, str, int, int]
FACTS = st.tuples(
    st.sampled_from(["VID-1", "VID-2"]),
    st.sampled_from(["live", "bulk"]),
    st.integers(1, 2),
    st.integers(1, 30),
)
BATCHES = st.lists(st.lists(FACTS, max_size=40), max_size=5)


def facts(batch: list[Fact], first_seq: int) -> pa.Table:
    rows = [
        {
            "stream": "UP_00",
            "stream_seq": first_seq + index,
            "device": device,
            "lane": lane,
            "epoch": epoch,
            "seq": seq,
            "points": seq,
        }
        for index, (device, lane, epoch, seq) in enumerate(batch)
    ]
    return pa.Table.from_pylist(rows, schema=MESSAGE_FACTS)


def expand(rows: list[dict[str, object]]) -> list[Fact]:
    return [
        (str(r["device"]), str(r["lane"]), int(str(r["epoch"])), seq)
        for r in rows
        for seq in range(int(str(r["lo"])), int(str(r["hi"])) + 1)
    ]


@given(BATCHES)
def test_each_identity_is_new_once_and_its_first_message_is_the_one_kept(
    batches: list[list[Fact]],
) -> None:
    coverage, held = Coverage(), set[Fact]()
    next_seq = 1
    for batch in batches:
        decision = coverage.decide(facts(batch, next_seq))
        repeats = []
        fresh = set[Fact]()
        for index, fact in enumerate(batch):
            if fact in held:
                repeats.append(next_seq + index)
            else:
                fresh.add(fact)
            held.add(fact)
        assert sorted(decision.repeats.get("UP_00", pa.array([])).to_pylist()) == repeats
        assert sorted(expand(decision.rows)) == sorted(fresh)
        assert decision.repeated == len(repeats)
        assert decision.messages == len(fresh)
        assert decision.points == sum(fact[3] for fact in fresh)
        assert sum(row["points"] for row in decision.rows) == decision.points
        next_seq += len(batch)


@given(BATCHES)
def test_the_table_of_ranges_holds_what_memory_holds_also_merged(batches: list[list[Fact]]) -> None:
    coverage, rows = Coverage(), []
    for number, batch in enumerate(batches):
        decision = coverage.decide(facts(batch, number * 100 + 1))
        rows += [row | {"ingest": number} for row in decision.rows]
    table = pa.Table.from_pylist(rows, schema=COVERAGE_TABLE.schema)
    merged = merge_rows(table)
    assert Coverage.from_table(table).lanes == coverage.lanes
    assert Coverage.from_table(merged).lanes == coverage.lanes
    assert merged.num_rows == sum(len(lane) for lane in coverage.lanes.values())
    assert sum(merged.column("points").to_pylist()) == sum(table.column("points").to_pylist())
    assert merged.schema == COVERAGE_TABLE.schema


def test_which_repeat_wins_does_not_hang_on_the_order_of_the_tasks() -> None:
    late, early = facts([("VID-1", "bulk", 1, 5)], 20), facts([("VID-1", "bulk", 1, 5)], 10)
    for order in ([late, early], [early, late]):
        decision = Coverage().decide(pa.concat_tables(order))
        assert decision.repeats["UP_00"].to_pylist() == [20]


def test_a_range_over_a_hole_takes_only_the_hole() -> None:
    coverage = Coverage()
    coverage.lanes[LaneKey("VID-1", "bulk", 1)] = RangeSet([(1, 4), (7, 9)])
    batch: list[Fact] = [("VID-1", "bulk", 1, seq) for seq in range(3, 12)]
    decision = coverage.decide(facts(batch, 1))
    assert [(row["lo"], row["hi"]) for row in decision.rows] == [(5, 6), (10, 11)]
    assert coverage.lanes[LaneKey("VID-1", "bulk", 1)] == RangeSet([(1, 11)])


def test_no_messages_no_decision() -> None:
    assert Coverage().decide(MESSAGE_FACTS.empty_table()).rows == []

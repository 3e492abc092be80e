"""What becomes of a former epoch's messages by the hub's hashes, and what of OUT a ledger does not know. Pure."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from backhaul_agent.adoption import unknown
from backhaul_agent.ledger_lanes import Lane
from backhaul_agent.ledger_rows import OwnRow
from backhaul_agent.reconcile import MOVED, judge, question_of
from backhaul_agent.resend import Work
from backhaul_codec import Point, chain, encode_frame, encode_point, hash_of

LANE = Lane(3, "bulk", 42, next_seq=99)
NO_HASH = ("", None)


def row(seq: int, subject: str = "f.n") -> OwnRow:
    body = encode_frame([Point("n", "t", seq, float(seq))], epoch=42, seq=seq)
    return OwnRow(
        seq + 100, seq, subject, chain(body, epoch=42, seq=seq, link=b"linked"), 1, seq, seq
    )


def hex_of(each: OwnRow) -> str:
    return hash_of(each.subject, each.body).hex()


@given(
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["own", "other", "", None])), min_size=1)
)
def test_what_the_hub_holds_stays_and_the_rest_moves_and_nothing_else(
    draws: list[tuple[int, str | None]],
) -> None:
    """Seqs are drawn with holes between them: rows that the ledger has given up."""
    rows, hashes, lo = list[OwnRow](), dict[int, str | None](), draws[0][0]
    seq = 0
    for step, said in draws:
        seq += step
        rows.append(row(seq))
        hashes[seq] = {"own": hex_of(rows[-1]), "other": "0" * 12}.get(said or "", said)
    lo, hi = rows[0].seq, rows[-1].seq
    verdicts = judge(LANE, rows, lo, [hashes.get(each) for each in range(lo, hi + 1)])
    moved = [each for each in rows if hashes[each.seq] not in ("", None, hex_of(each))]
    assert verdicts.changes.evict == [each.id for each in moved]
    assert [(m.lane, m.subject, m.body, m.times) for m in verdicts.changes.messages] == [
        ("bulk", each.subject, each.body, (each.seq, each.seq)) for each in moved
    ]
    assert verdicts.moved == len(moved)
    assert verdicts.settled_seq == hi
    ended = [seq for span in verdicts.changes.evicted for seq in range(span.lo, span.hi + 1)]
    assert ended == [each.seq for each in moved]
    assert {span.reason for span in verdicts.changes.evicted} <= {MOVED}
    again = [seq for low, high in verdicts.again for seq in range(low, high + 1)]
    assert again == [each.seq for each in rows if hashes[each.seq] is None]


def test_what_is_not_answered_is_not_at_the_hub() -> None:
    assert judge(LANE, [row(1), row(2)], 1, [hex_of(row(1))]).again == [(2, 2)]
    assert judge(LANE, [row(1)], 2, [hex_of(row(1))]).again == [(1, 1)]


def test_a_message_that_speaks_of_its_own_epoch_ends_with_it() -> None:
    body = encode_point(Point("", "mark", 1, 1.0), epoch=42, seq=1)
    mark = OwnRow(1, 1, "e.mark", body, 4, None, None)
    app = OwnRow(2, 2, "e.app.door", body, 4, 5, 5)
    verdicts = judge(Lane(4, "live", 42, next_seq=3), [mark, app], 1, ["0" * 12] * 2)
    assert [message.subject for message in verdicts.changes.messages] == ["e.app.door"]
    assert verdicts.changes.evict == [1, 2]
    assert verdicts.again == []


def test_what_a_nodes_own_lane_had_goes_to_the_shared_one_to_be_placed_anew() -> None:
    lane = Lane(5, "n_gps", 42, next_seq=3)
    frame, point = row(1, "n.gps.f.gps"), row(2, "n.gps.p.gps.fix.%")
    verdicts = judge(lane, [frame, point], 1, ["0" * 12] * 2)
    assert [(m.lane, m.subject) for m in verdicts.changes.messages] == [
        ("bulk", "f.gps"),
        ("live", "p.gps.fix.%"),
    ]


def test_a_question_names_the_first_and_the_last_seq() -> None:
    assert question_of(LANE, [row(3), row(9)]) == ("bulk", 42, 3, 9)


RUNS = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 6)), max_size=8)


@given(RUNS, st.dictionaries(st.integers(1, 3), st.integers(0, 12)))
def test_what_the_ledger_does_not_know_is_found_once_each_where_it_stands_first_in_its_run(
    draws: list[tuple[int, int, int]], last_seqs: dict[int, int]
) -> None:
    runs, at = list[Work](), 1
    for epoch, lo, length in draws:
        runs.append(Work(epoch, lo, lo + length - 1, at))
        at += length
    found = unknown(runs, last_seqs)
    places = [
        (work.epoch, seq, work.stream_seq + seq - work.lo)
        for work in found
        for seq in range(work.lo, work.hi + 1)
    ]
    seqs = [(epoch, seq) for epoch, seq, _ in places]
    assert len(seqs) == len(set(seqs))
    assert set(seqs) == {
        (run.epoch, seq)
        for run in runs
        for seq in range(run.lo, run.hi + 1)
        if seq > last_seqs.get(run.epoch, 0)
    }
    there = {
        (run.epoch, run.lo + step, run.stream_seq + step)
        for run in runs
        for step in range(run.hi - run.lo + 1)
    }
    assert set(places) <= there
    for epoch in {work.epoch for work in found}:
        mine = [seq for of, seq in seqs if of == epoch]
        assert mine == sorted(mine)

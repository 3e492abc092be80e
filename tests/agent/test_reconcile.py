"""What becomes of a former epoch's messages by the hub's hashes, and what of OUT a ledger does not know. Pure."""

from __future__ import annotations

from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from backhaul_agent.ledger.lanes import CommittedLane
from backhaul_agent.ledger.rows import OwnRow
from backhaul_agent.uplink.adoption import unknown
from backhaul_agent.uplink.reconcile import MOVED, Spare, Verdicts, judge, question_of
from backhaul_agent.uplink.resend import Work
from backhaul_codec import Point, chain, encode_frame, encode_point, hash_of
from backhaul_codec.protocol.words import spare_of
from backhaul_codec.wire.envelope import NO_LINK

LANE = CommittedLane(3, "bulk", 42, next_seq=99)
GOLDEN = [1053539504, 788627470, 212941029]


def row(seq: int, subject: str = "f.n") -> OwnRow:
    body = encode_frame([Point("n", "t", seq, float(seq))], epoch=42, seq=seq)
    return OwnRow(
        seq + 100, seq, subject, chain(body, epoch=42, seq=seq, link=b"linked"), 1, seq, seq
    )


def spared(each: OwnRow, epoch: int = spare_of(42)) -> bytes:
    """Return a message's bytes in a spare epoch."""
    return chain(each.body, epoch=epoch, seq=each.seq, link=NO_LINK)


def subjects(verdicts: Verdicts) -> list[str]:
    return [row.subject for found in verdicts.changes.adopted for row in found.rows]


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
    there = [row for found in verdicts.changes.adopted for row in found.rows]
    assert there == [each._replace(body=spared(each)) for each in moved]
    assert {found[:2] for found in verdicts.changes.adopted} <= {("bulk", spare_of(42))}
    unused = {seq for low, high in verdicts.unused for seq in range(low, high + 1)}
    last = max((each.seq for each in moved), default=0)
    assert unused == set(range(1, last + 1)) - {each.seq for each in moved}
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
    verdicts = judge(CommittedLane(4, "live", 42, next_seq=3), [mark, app], 1, ["0" * 12] * 2)
    assert subjects(verdicts) == ["e.app.door"]
    assert verdicts.changes.evict == [1, 2]
    assert verdicts.again == []


def test_a_node_lanes_message_stays_in_its_lane() -> None:
    lane = CommittedLane(5, "n_gps", 42, next_seq=3)
    frame, point = row(1, "n.gps.f.gps"), row(2, "n.gps.p.gps.fix.%")
    verdicts = judge(lane, [frame, point], 1, ["0" * 12] * 2)
    assert subjects(verdicts) == ["n.gps.f.gps", "n.gps.p.gps.fix.%"]
    assert verdicts.changes.adopted[0].lane == "n_gps"


@given(st.integers(1, 2**32 - 1))
def test_a_copy_goes_to_the_same_place_with_the_same_bytes_whoever_has_it(epoch: int) -> None:
    """Whatever stands beside it, and whichever way it took: by the place it is known again."""
    mine, twin = row(7), row(7)._replace(id=3, value_class=0)
    first = judge(CommittedLane(3, "bulk", epoch, next_seq=99), [row(6), mine], 6, ["0" * 12] * 2)
    second = judge(CommittedLane(9, "bulk", epoch, next_seq=8), [twin], 7, ["0" * 12])
    one, two = first.changes.adopted[0], second.changes.adopted[0]
    assert (one.epoch, one.rows[-1].body) == (two.epoch, two.rows[-1].body)
    assert one.epoch != epoch
    on = judge(CommittedLane(4, "bulk", one.epoch), [cast("OwnRow", one.rows[-1])], 7, ["0" * 12])
    far = spare_of(spare_of(epoch))
    assert on.changes.adopted[0].epoch == far
    assert on.changes.adopted[0].rows[0].body == spared(twin, far)


def test_spare_epochs_stay_what_they_are() -> None:
    """Vehicles of any version must find the same ones."""
    assert [spare_of(epoch) for epoch in (1, 42, 2**32 - 1)] == GOLDEN


def test_a_message_of_which_the_place_there_is_taken_waits_until_that_is_settled() -> None:
    mine = row(7)
    taken = {7: row(7, "f.m")}
    waits = judge(LANE, [mine], 7, ["0" * 12], Spare(7, 6, taken))
    assert (waits.later, waits.moved, bool(waits.changes)) == (1, 0, False)
    settled = judge(LANE, [mine], 7, ["0" * 12], Spare(7, 7, taken))
    assert (settled.later, settled.changes.evict) == (1, [taken[7].id]), "the hub holds that one"
    assert settled.changes.adopted == []


def test_a_message_that_stands_there_already_only_ends_in_its_old_place() -> None:
    mine = row(7)
    known = {7: mine._replace(id=9, body=spared(mine))}
    verdicts = judge(LANE, [mine], 7, ["0" * 12], Spare(7, 0, known))
    assert (verdicts.changes.evict, verdicts.changes.adopted) == ([mine.id], [])
    assert (verdicts.later, verdicts.unused) == (0, [])


def test_only_what_was_not_spoken_of_before_is_said_to_be_unused() -> None:
    verdicts = judge(LANE, [row(4), row(9)], 4, ["0" * 12] * 6, Spare(6))
    assert verdicts.unused == [(7, 8)]
    assert judge(LANE, [row(4)], 4, ["0" * 12], Spare(6)).unused == []


def test_what_is_damaged_is_not_moved() -> None:
    bad = row(7)._replace(body=b"rot")
    verdicts = judge(LANE, [bad], 7, ["0" * 12])
    assert (verdicts.again, bool(verdicts.changes)) == ([(7, 7)], False)


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

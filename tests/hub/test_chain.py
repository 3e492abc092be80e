"""The chain of a lane at the hub: one history never parts, two are always noticed.

Histories are drawn with hypothesis and arrive in any order, with repeats, receipts, and losses of UP.
Not covered: two hashes of six bytes that are the same by chance.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_codec.ranges import RangeSet
from backhaul_codec.wire.envelope import NO_LINK
from backhaul_hub.continuity.chain import INNER_ENDS_MAX, Chain, Fork, Watermark, from_text, to_text
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.continuity.repeats import RUNS_MAX, Run, forks_from

if TYPE_CHECKING:
    from collections.abc import Iterable

LANE = LaneKey("VID-001", "bulk", 7)
SEQS = 12


class Linked(NamedTuple):
    """A message as the chain sees it."""

    seq: int
    link: bytes
    own: bytes


def history(length: int, *, parts_at: int = 0, plain_to: int = 0) -> dict[int, Linked]:
    """Return a lane's messages by seq; from `parts_at` on they are not those of the other history.

    Up to `plain_to` they are of version 1.
    """
    link, found = NO_LINK, {}
    for seq in range(1, length + 1):
        text = f"{seq}{'other' if parts_at and seq >= parts_at else ''}".encode()
        own = blake2b(link + text, digest_size=6).digest()
        found[seq] = Linked(seq, b"" if seq <= plain_to else link, own)
        link = own
    return found


def take(continuity: Continuity, messages: Iterable[Linked]) -> None:
    for seq, link, own in messages:
        continuity.arrived(LANE, seq, 10, 1, link=link, own=own)


def told(continuity: Continuity) -> Watermark:
    return continuity.told_of(LANE)


ONE = history(SEQS)
ORDER = st.permutations(range(1, SEQS + 1))
# What happens to a hub: a message comes (again), UP loses some, or the control plane restarts.
HAPPENS = st.lists(
    st.one_of(
        st.integers(1, SEQS),
        st.sets(st.integers(1, SEQS), max_size=5).map(frozenset),
        st.just("restart"),
    ),
    max_size=40,
)


@given(HAPPENS, ORDER, st.integers(0, SEQS))
def test_one_history_never_parts(
    happens: list[int | frozenset[int] | str], order: list[int], plain_to: int
) -> None:
    messages, continuity = history(SEQS, plain_to=plain_to), Continuity()
    for each in [*happens, *order]:
        if isinstance(each, int):
            take(continuity, [messages[each]])
        elif isinstance(each, frozenset) and LANE in continuity.lanes:
            held = _seqs(continuity) - each
            continuity.restate(LANE, RangeSet((seq, seq) for seq in sorted(held)))
        elif LANE in continuity.lanes:
            chain = continuity.lanes[LANE].chain
            assert from_text(to_text(chain)) == chain
            continuity.lanes[LANE].chain = from_text(to_text(chain))
        if LANE in continuity.lanes:
            seq, known, fork = told(continuity)
            assert seq == continuity.lanes[LANE].watermark
            assert known in (b"", messages[seq].own if seq else NO_LINK)
            assert fork is Fork.NONE
    assert told(continuity)[0] == SEQS
    assert not continuity.forks


def _seqs(continuity: Continuity) -> set[int]:
    return {seq for lo, hi in continuity.lanes[LANE].held for seq in range(lo, hi + 1)}


@given(ORDER)
def test_without_losses_the_hash_at_the_watermark_is_always_known(order: list[int]) -> None:
    continuity = Continuity()
    for seq in order:
        take(continuity, [ONE[seq]])
        at = continuity.lanes[LANE].watermark
        assert told(continuity) == (at, ONE[at].own if at else NO_LINK, Fork.NONE)
    chain = continuity.lanes[LANE].chain
    assert (len(chain.ends), len(chain.starts)) == (1, 0)


@given(st.integers(1, SEQS), st.data())
def test_two_histories_are_always_noticed(parts_at: int, data: st.DataObject) -> None:
    """What is told never goes beyond where the other history begins; what is not seen is in doubt."""
    other = history(SEQS, parts_at=parts_at)
    both = [*ONE.values(), *(other[seq] for seq in range(parts_at, SEQS + 1))]
    continuity, first = Continuity(), dict[int, Linked]()
    for message in data.draw(st.permutations(both)):
        take(continuity, [message])
        first.setdefault(message.seq, message)
        seq, known, fork = told(continuity)
        held = [first[at] for at in range(1, seq + 1)]
        assert all(at.own == ONE[at.seq].own for at in held) or all(
            at.own == other[at.seq].own for at in held
        )
        assert known in (b"", held[-1].own if held else NO_LINK)
        if seq < continuity.lanes[LANE].watermark:
            assert fork is not Fork.NONE
    assert told(continuity).fork is Fork.FORKED or continuity.take_repeats()


@given(st.integers(1, SEQS - 1))
def test_the_second_history_is_noticed_at_its_first_message(parts_at: int) -> None:
    other = history(SEQS + 1, parts_at=parts_at)
    continuity = Continuity()
    take(continuity, (ONE[seq] for seq in range(1, parts_at + 1)))
    take(continuity, [other[parts_at]])
    assert told(continuity) == (parts_at, ONE[parts_at].own, Fork.FORKED)
    assert continuity.forks == [LANE]


def test_a_message_that_does_not_link_stops_what_is_told() -> None:
    other, continuity = history(SEQS, parts_at=4), Continuity()
    take(continuity, [ONE[seq] for seq in range(1, 6)])
    take(continuity, [other[seq] for seq in range(6, SEQS + 1)])
    assert continuity.lanes[LANE].watermark == SEQS
    assert told(continuity) == (5, ONE[5].own, Fork.FORKED)
    assert continuity.forks == [LANE]


@given(st.permutations([*range(1, 5), *range(7, SEQS + 1), "receipt"]), st.booleans())
def test_a_receipt_with_a_hash_carries_the_chain_across(
    order: list[int | str], wrong: bool
) -> None:
    continuity = Continuity()
    behind = b"others" if wrong else ONE[7].link
    for each in order:
        if each == "receipt":
            continuity.explain(LANE, 5, 6, "evicted", behind)
        else:
            take(continuity, [ONE[int(each)]])
    if wrong:
        assert told(continuity)[0] == 6
        assert told(continuity).fork is Fork.FORKED
    else:
        assert told(continuity) == (SEQS, ONE[SEQS].own, Fork.NONE)


@given(st.permutations([*range(1, 5), *range(7, SEQS + 1), "receipt"]))
def test_a_receipt_without_one_ends_what_can_be_proven(order: list[int | str]) -> None:
    """No fork has been seen, but the vehicle is to begin another epoch: this one would stand still."""
    continuity = Continuity()
    for each in order:
        if each == "receipt":
            continuity.explain(LANE, 5, 6, "ledger lost")
        else:
            take(continuity, [ONE[int(each)]])
    assert told(continuity) == (4, ONE[4].own, Fork.UNPROVEN)
    assert not continuity.forks
    continuity.end(LANE.device, LANE.epoch)
    assert told(continuity).fork is Fork.OVER


@given(st.permutations([*range(1, 5), *range(7, SEQS + 1), "receipt"]))
def test_messages_without_links_are_confirmed_across_any_receipt(order: list[int | str]) -> None:
    """An agent of an older version has neither links nor hashes: its lanes go on as they did."""
    plain, continuity = history(SEQS, plain_to=SEQS), Continuity()
    for each in order:
        if each == "receipt":
            continuity.explain(LANE, 5, 6, "evicted")
        else:
            take(continuity, [plain[int(each)]])
    assert told(continuity) == (SEQS, plain[SEQS].own, Fork.NONE)


@pytest.mark.parametrize("hash_first", [True, False])
def test_one_receipt_that_says_the_hash_is_enough(hash_first: bool) -> None:
    """What the hub asks for before the first receipt has come gets a second one, which may know less."""
    continuity = Continuity()
    take(continuity, (ONE[seq] for seq in (1, 2, 3, 4)))
    said = [(5, 6, "evicted", ONE[7].link), (5, 6, "evicted", b"")]
    for receipt in said if hash_first else said[::-1]:
        continuity.explain(LANE, *receipt)
    take(continuity, (ONE[seq] for seq in range(7, SEQS + 1)))
    if hash_first:
        continuity.explain(LANE, *said[1])
    assert told(continuity) == (SEQS, ONE[SEQS].own, Fork.NONE)


@pytest.mark.parametrize("link", [b"", b"others"])
def test_what_comes_though_a_receipt_stood_for_it_must_be_what_that_said(link: bytes) -> None:
    continuity = Continuity()
    take(continuity, (ONE[seq] for seq in (1, 2, 3, 4)))
    continuity.explain(LANE, 5, 6, "evicted", ONE[7].link)
    take(continuity, [ONE[7], ONE[6]])
    assert told(continuity) == (7, ONE[7].own, Fork.NONE)
    continuity = Continuity()
    continuity.explain(LANE, 5, 6, "evicted", ONE[7].link)
    take(continuity, [Linked(6, link, b"others")])
    assert told(continuity).fork is Fork.FORKED


@pytest.mark.parametrize("downward", [False, True])
def test_receipts_without_end_take_no_room_without_end(downward: bool) -> None:
    """An agent whose ledger is full says one after the other, for as long as it is offline."""
    continuity = Continuity()
    take(continuity, [ONE[1]])
    last = 20_001
    if downward:  # no agent does
        continuity.explain(LANE, 2, last, "evicted", b"behind")
    for high in range(11, last + 1, 10)[:: -1 if downward else 1]:
        continuity.explain(LANE, 2 if downward else high - 9, high, "evicted", b"%6d" % high)
    chain = continuity.lanes[LANE].chain
    assert len(continuity.lanes[LANE].receipts) == 1
    assert len(chain.ends) <= INNER_ENDS_MAX
    assert told(continuity) == (last, b"%6d" % last, Fork.NONE)
    take(continuity, [Linked(last + 1, b"%6d" % last, b"own")])
    assert told(continuity) == (last + 1, b"own", Fork.NONE)
    take(continuity, [Linked(last - 19, b"other", b"others")])
    assert told(continuity).fork is Fork.FORKED, "the newest are still compared"


def test_what_the_hub_has_held_and_lost_was_one_history_then() -> None:
    """UP was purged, and the vehicle has forgotten what was confirmed to it: no doubt follows."""
    continuity = Continuity()
    take(continuity, ONE.values())
    continuity.restate(LANE, RangeSet([(6, SEQS)]))
    continuity.explain(LANE, 1, 5, "forgotten")
    assert told(continuity)[0] == SEQS
    assert told(continuity).fork is Fork.NONE
    assert not continuity.forks


def test_a_repeat_of_which_the_hash_is_not_at_hand_is_in_doubt_once() -> None:
    continuity = Continuity()
    take(continuity, ONE.values())
    take(continuity, [ONE[SEQS]])
    assert continuity.take_repeats() == {}
    take(continuity, [ONE[3], ONE[4], ONE[7]])
    runs = [Run(3, ONE[2].own, 4, ONE[4].own), Run(7, ONE[6].own, 7, ONE[7].own)]
    assert continuity.take_repeats() == {LANE: runs}
    assert continuity.take_repeats() == {}
    continuity.fork(LANE, 1)
    continuity.fork(LANE, 1)
    take(continuity, [ONE[4]])
    assert continuity.take_repeats() == {}, (
        "of an epoch that is forked from its start no more is known"
    )
    assert continuity.forks == [LANE]


def judge(continuity: Continuity, first: dict[int, Linked]) -> None:
    """Compare what came again with what came first, as the hub does with what UP holds."""
    for key, runs in continuity.take_repeats().items():
        for run in runs:
            hashes = [
                first[seq].own.hex() if seq in first else None for seq in (run.first - 1, run.last)
            ]
            if since := forks_from(run, hashes):
                continuity.fork(key, since)


@given(st.integers(1, SEQS), st.data())
def test_a_fork_is_never_said_to_begin_above_where_it_does(
    parts_at: int, data: st.DataObject
) -> None:
    """Whatever comes of either history, in any order, and whatever never comes."""
    other = history(SEQS, parts_at=parts_at)
    both = [*ONE.values(), *(other[seq] for seq in range(parts_at, SEQS + 1))]
    continuity, first = Continuity(), dict[int, Linked]()
    for message in data.draw(st.lists(st.sampled_from(both), max_size=30)):
        take(continuity, [message])
        first.setdefault(message.seq, message)
        if data.draw(st.booleans()):
            judge(continuity, first)
    judge(continuity, first)
    if LANE in continuity.lanes:
        assert continuity.lanes[LANE].chain.forked_from <= parts_at


def test_a_fork_begins_where_both_machines_messages_are_held_or_came_again() -> None:
    other, continuity = history(SEQS, parts_at=4), Continuity()
    take(continuity, [ONE[seq] for seq in range(1, 7)])
    take(continuity, [other[seq] for seq in range(4, SEQS + 1)])
    judge(continuity, ONE)
    assert continuity.lanes[LANE].chain.forked_from == 4


def test_a_fork_of_which_the_first_messages_never_came_begins_with_the_epoch() -> None:
    """A source that had read on passes over what a copy of the disk wrote in the same places."""
    other, continuity = history(SEQS, parts_at=3), Continuity()
    take(continuity, [ONE[seq] for seq in range(1, 7)])
    take(continuity, [other[seq] for seq in range(6, SEQS + 1)])
    judge(continuity, ONE)
    assert continuity.lanes[LANE].chain.forked_from == 1


def test_of_repeats_that_nobody_could_look_at_no_more_is_said() -> None:
    other, continuity = history(SEQS, parts_at=4), Continuity()
    take(continuity, [ONE[seq] for seq in range(1, SEQS + 1)])
    for _ in range(RUNS_MAX + 1):
        take(continuity, [other[5]])
    assert continuity.lanes[LANE].chain.forked_from == 0, "so far none has been seen"
    take(continuity, [other[4]])
    judge(continuity, ONE)
    assert continuity.lanes[LANE].chain.forked_from == 1


def test_what_a_vehicle_is_told() -> None:
    assert Watermark(7, b"\1" * 6).words() == {"seq": 7, "hash": "01" * 6}
    assert Watermark(7, b"", Fork.FORKED).words() == {"seq": 7, "hash": "", "fork": 2}
    assert Watermark(7, b"\1" * 6, Fork.OVER).row() == (7, "01" * 6, 1)
    assert from_text("") == Chain()

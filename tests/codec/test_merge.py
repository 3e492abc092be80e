"""The laws of merging: whatever the order, however often, both ends come to the same heads."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_codec import CodecError, Opaque, Point, Value, decode, encode_point
from backhaul_codec.state.merge import (
    Head,
    HeadKey,
    Heads,
    ValueChange,
    differing,
    join,
    merge,
    node_digest,
    root_digest,
    tombstone_for,
)
from tests.support import strategies

if TYPE_CHECKING:
    from random import Random

NOON = 1_700_000_000_000_000_000
NANS = [strategies.double(0x7FF8_0000_0000_0000), strategies.double(0x7FF8_0000_0000_0001)]
TIED: list[Value] = [
    0,
    0.0,
    -0.0,
    1,
    1.0,
    "",
    "1",
    b"",
    b"1",
    *NANS,
    Opaque(6, b"1"),
    Opaque(7, b"1"),
]
# Few of each, so that ties of every depth are common.
times = st.integers(NOON, NOON + 2)
origins = st.sampled_from(["", "hub", "hub:ann"])
values = st.one_of(st.sampled_from(TIED), strategies.values)
heads = st.builds(Head, times, origins, values, st.integers(0, 4))
ends = st.sampled_from(["", "car", "gps"])
nodes = st.sampled_from(["gps", "imu"])
points = st.builds(
    Point, nodes, st.sampled_from("ab"), times, values, ends, st.integers(0, 4), origins
)
offers = st.lists(st.tuples(ends, points), max_size=20)


@given(heads, heads)
def test_join_is_commutative(a: Head, b: Head) -> None:
    assert join(a, b) == join(b, a)


@given(heads, heads, heads)
def test_join_is_associative(a: Head, b: Head, c: Head) -> None:
    assert join(join(a, b), c) == join(a, join(b, c))


@given(heads, heads)
def test_join_is_idempotent(a: Head, b: Head) -> None:
    assert join(a, a) == a
    both = join(a, b)
    assert join(both, a) is both
    assert join(both, b) is both


@given(heads, heads)
def test_neither_time_nor_tombstone_goes_back(a: Head, b: Head) -> None:
    both = join(a, b)
    assert both.tombstone == max(a.tombstone, b.tombstone)
    assert both.rank() == max(a.rank(), b.rank())


def test_any_two_values_of_one_time_have_an_order() -> None:
    """Though NaN equals nothing, 0.0 equals -0.0, and 1 equals 1.0."""
    found = [Head(NOON, "", value) for value in TIED]
    for a in found:
        for b in found:
            assert (a == b) is (a is b), (a, b)
            assert join(a, b) == join(b, a)
    ordered = sorted(found, key=Head.rank)
    assert all(join(low, high) is high for low, high in pairwise(ordered))
    assert len(set(found)) == len(TIED)


@given(offers, st.randoms(use_true_random=False))
def test_two_replicas_agree(offered: list[tuple[str, Point]], random: Random) -> None:
    """Each gets everything in an order of its own, and some of it twice."""
    replicas = [Heads(), Heads()]
    for replica in replicas:
        again = offered + [item for item in offered if random.random() < 0.5]
        random.shuffle(again)
        for parent, point in again:
            replica.offer(parent, point)
    one, other = replicas
    assert dict(one) == dict(other)
    assert one.digests() == other.digests()
    assert one.root() == other.root() == Heads(iter(one)).root()
    assert differing(one.digests(), other.digests()) == []
    best: dict[HeadKey, tuple[tuple[int, str, bytes], int]] = {}
    for parent, point in offered:
        key, head = HeadKey.of(parent, point), Head.of(point)
        rank, tombstone = best.get(key, (head.rank(), 0))
        best[key] = max(rank, head.rank()), max(tombstone, head.tombstone)
    assert {key: (head.rank(), head.tombstone) for key, head in one} == best


@given(offers)
def test_what_a_point_did_is_said(offered: list[tuple[str, Point]]) -> None:
    replica = Heads()
    for parent, point in offered:
        key, mine = HeadKey.of(parent, point), Head.of(point)
        before = replica.get(key)
        stored = dict(replica)
        digests = replica.digests()
        merged = replica.offer(parent, point)
        assert merged.before is before
        assert replica.get(key) == merged.head
        assert merged.changed == (merged.head != before)
        assert merged.changed == (replica.digests() != digests)
        assert merged.changed or dict(replica) == stored
        if before is None:
            assert merged.change is ValueChange.NEW
        elif mine.rank() < before.rank():
            assert merged.change is ValueChange.LOST
        else:
            assert merged.change is (ValueChange.WON if merged.changed else ValueChange.REPEAT)
        assert replica.offer(parent, point).changed is False


@given(heads, points)
def test_a_head_survives_the_way_to_the_other_end(head: Head, point: Point) -> None:
    key = HeadKey.of("", point)
    body = encode_point(head.to_point(key), epoch=0, seq=0)
    [back] = decode(body, node=key.node, type=key.type, key=key.key).points
    assert (HeadKey.of("", back), Head.of(back)) == (key, head)


def test_a_lost_point_may_still_delete() -> None:
    head = Head(NOON, "", 5)
    merged = merge(head, Point("gps", "a", NOON - 1, 4, tombstone=1))
    assert (merged.change, merged.changed) == (ValueChange.LOST, True)
    assert merged.head == Head(NOON, "", 5, 1)
    assert merged.head.deleted
    # Who does not know of it cannot put it back by accident.
    assert merge(merged.head, Point("gps", "a", NOON + 1, 6)).head.deleted


def test_digests_tell_every_field_apart() -> None:
    key, head = HeadKey("car", "gps", "a", "k"), Head(NOON, "hub", 5, 2)
    digest = node_digest([(key, head)])
    others = [
        *((replace(head, time=NOON + 1), key), (replace(head, origin=""), key)),
        *((replace(head, value=5.0), key), (replace(head, tombstone=3), key)),
        *((head, key._replace(parent="")), (head, key._replace(type="b"))),
        *((head, key._replace(key="")), (head, key._replace(type="ak", key=""))),
    ]
    assert len({digest, *(node_digest([(key, head)]) for head, key in others)}) == 9
    assert len({root_digest({"a": "1"}), root_digest({"a1": ""}), root_digest({})}) == 3


def test_digests_stay_what_they_are() -> None:
    """Both ends compute them, perhaps with different releases: the form must not drift."""
    heads = Heads([(HeadKey("", "gps", "name"), Head(NOON, "", "roof"))])
    heads.offer("car", Point("gps", "nodeType", NOON + 1, "sensor", origin="hub", tombstone=2))
    assert heads.digests() == {"gps": "8faed74ce743fde0"}
    assert heads.root() == "30e3b6dd1d33f5af"
    assert len(heads) == 2
    assert list(heads.of_node("gps")) == [
        HeadKey("", "gps", "name"),
        HeadKey("car", "gps", "nodeType"),
    ]
    assert (heads.nodes(), heads.of_node("imu")) == (["gps"], {})


def test_differing_nodes_are_named() -> None:
    mine, theirs = {"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "x", "d": "4"}
    assert differing(mine, theirs) == ["b", "c", "d"]


def test_tombstones_count_on() -> None:
    assert [tombstone_for(now, deleted=True) for now in (0, 1, 2)] == [1, 1, 3]
    assert [tombstone_for(now, deleted=False) for now in (0, 1, 2)] == [0, 2, 2]
    assert tombstone_for(254, deleted=True) == tombstone_for(255, deleted=True) == 255
    with pytest.raises(CodecError, match="any more"):
        tombstone_for(255, deleted=False)

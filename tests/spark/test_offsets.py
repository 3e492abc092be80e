"""What to read next: shares, marks, gaps and pieces, without a server."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_spark.errors import (
    MessagesGoneError,
    OptionError,
    StreamMissingError,
    StreamRecreatedError,
)
from backhaul_spark.nats.offsets import (
    GAP_DELETED,
    GAP_RECREATED,
    GAP_RETENTION,
    GAP_REWOUND,
    ReadMark,
    Span,
    advance,
    from_json,
    initial,
    share,
    spans,
    split,
    to_json,
)
from backhaul_spark.nats.stored import StreamInfo


def info(last: int, *, first: int = 1, created: str = "then", name: str = "UP_00") -> StreamInfo:
    return StreamInfo(name, created, first, last, last - first + 1, 0)


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 1000)), st.integers(1, 2000))
def test_shares_use_the_limit_and_starve_nobody(backlogs: dict[str, int], limit: int) -> None:
    granted = share(backlogs, limit)
    assert sum(granted.values()) == min(limit, sum(backlogs.values()))
    assert all(0 <= granted[name] <= backlogs[name] for name in backlogs)
    if limit >= len(backlogs):
        assert all(granted[name] for name in backlogs if backlogs[name])


def test_a_new_query_starts_at_the_earliest_message_or_after_the_latest() -> None:
    streams = {"UP_00": info(9, first=4)}
    assert initial(streams, "earliest") == {"UP_00": ReadMark(3, "then")}
    assert initial(streams, "latest") == {"UP_00": ReadMark(9, "then")}
    with pytest.raises(OptionError, match="earliest or latest"):
        initial(streams, "yesterday")


def test_an_offset_survives_the_checkpoint_and_another_version_is_refused() -> None:
    marks = {"UP_00": ReadMark(7, "then", "2026-01-01T00:00:00Z", 2)}
    assert from_json(json.loads(json.dumps(to_json(marks)))) == marks
    with pytest.raises(OptionError, match="offset version"):
        from_json({"version": 99, "streams": {}})


def test_advance_moves_every_stream_by_its_share() -> None:
    streams = {"UP_00": info(100), "UP_01": info(10, name="UP_01")}
    start = {"UP_00": ReadMark(0, "then"), "UP_01": ReadMark(0, "then")}
    end = advance(start, streams, limit=30)
    assert {name: mark.seq for name, mark in end.items()} == {"UP_00": 20, "UP_01": 10}
    assert {name: mark.seq for name, mark in advance(start, streams).items()} == {
        "UP_00": 100,
        "UP_01": 10,
    }


def test_a_stream_that_appears_later_is_read_from_its_first_sequence() -> None:
    end = advance({}, {"UP_01": info(5)})
    assert end == {"UP_01": ReadMark(5, "then")}
    assert spans({}, end, {"UP_01": info(5)}) == [Span("UP_01", 1, 5)]


def test_available_now_never_passes_its_target() -> None:
    start = {"UP_00": ReadMark(3, "then")}
    target = {"UP_00": ReadMark(7, "then")}
    assert advance(start, {"UP_00": info(20)}, target=target)["UP_00"].seq == 7
    later = advance({"UP_00": ReadMark(7, "then")}, {"UP_00": info(20)}, target=target)
    assert later == {"UP_00": ReadMark(7, "then")}
    unknown = advance({}, {"UP_09": info(20)}, target=target)
    assert unknown == {"UP_09": ReadMark(0, "then")}


def test_a_vanished_stream_is_an_error_and_never_no_data() -> None:
    with pytest.raises(StreamMissingError, match="UP_00"):
        advance({"UP_00": ReadMark(3, "then")}, {}, on_gap="record")


def test_a_recreated_stream_fails_or_starts_over_with_a_gap() -> None:
    start = {"UP_00": ReadMark(50, "then")}
    now = {"UP_00": info(9, created="now")}
    with pytest.raises(StreamRecreatedError, match="created again at now"):
        advance(start, now)
    end = advance(start, now, on_gap="record")
    assert end == {"UP_00": ReadMark(9, "now")}
    assert spans(start, end, now, on_gap="record") == [
        Span("UP_00", 51, 50, GAP_RECREATED),
        Span("UP_00", 1, 9),
    ]
    with pytest.raises(StreamRecreatedError):
        spans(start, end, now)


def test_a_rewound_stream_starts_over_with_a_gap() -> None:
    start = {"UP_00": ReadMark(50, "then", "stamp")}
    streams = {"UP_00": info(60)}
    end = advance(start, streams, rewound=frozenset({"UP_00"}), on_gap="record")
    assert end == {"UP_00": ReadMark(60, "then", "", 1)}
    found = spans(start, end, streams, on_gap="record")
    assert found == [Span("UP_00", 51, 50, GAP_REWOUND), Span("UP_00", 1, 60)]


def test_messages_that_limits_removed_are_a_gap() -> None:
    start, end = {"UP_00": ReadMark(3, "then")}, {"UP_00": ReadMark(20, "then")}
    streams = {"UP_00": info(25, first=11)}
    with pytest.raises(MessagesGoneError) as caught:
        spans(start, end, streams)
    assert (caught.value.lo, caught.value.hi) == (4, 10)
    assert spans(start, end, streams, on_gap="record") == [
        Span("UP_00", 4, 10, GAP_RETENTION),
        Span("UP_00", 11, 20),
    ]


def test_a_planned_batch_whose_stream_is_gone_by_now_is_a_gap_whole() -> None:
    start, end = {"UP_00": ReadMark(3, "then")}, {"UP_00": ReadMark(20, "then")}
    gone = spans(start, end, {"UP_00": info(5, created="now")}, on_gap="record")
    assert gone == [Span("UP_00", 4, 20, GAP_RETENTION)]


@pytest.mark.parametrize(
    ("first", "last", "found"),
    [
        (1, 9, [Span("UP_00", 7, 8)]),
        (1, 7, [Span("UP_00", 7, 7), Span("UP_00", 8, 8, GAP_DELETED)]),
        (1, 5, [Span("UP_00", 7, 8, GAP_DELETED)]),
        (0, 0, [Span("UP_00", 7, 8, GAP_DELETED)]),
        (9, 8, [Span("UP_00", 7, 8, GAP_RETENTION)]),
        (8, 7, [Span("UP_00", 7, 7, GAP_RETENTION), Span("UP_00", 8, 8, GAP_DELETED)]),
    ],
    ids=["whole", "end gone", "before the batch", "empty", "purged", "purged, then gone"],
)
def test_of_a_planned_batch_what_the_stream_has_no_more_is_a_gap(
    first: int, last: int, found: list[Span]
) -> None:
    start, end = {"UP_00": ReadMark(6, "then")}, {"UP_00": ReadMark(8, "then")}
    assert spans(start, end, {"UP_00": info(last, first=first)}, on_gap="record") == found


@given(
    st.lists(st.tuples(st.integers(1, 500), st.integers(1, 300)), min_size=1, max_size=5),
    st.integers(1, 8),
)
def test_pieces_cover_every_sequence_once(bounds: list[tuple[int, int]], partitions: int) -> None:
    found = [Span(f"UP_{i}", lo, lo + size - 1) for i, (lo, size) in enumerate(bounds)]
    pieces = split([*found, Span("UP_9", 1, 4, GAP_RETENTION)], partitions)
    assert pieces[-1] == Span("UP_9", 1, 4, GAP_RETENTION)
    covered = [(p.stream, seq) for p in pieces[:-1] for seq in range(p.lo, p.hi + 1)]
    assert covered == [(s.stream, seq) for s in found for seq in range(s.lo, s.hi + 1)]
    assert len(pieces) - 1 <= partitions + len(found)

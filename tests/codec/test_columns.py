"""Many messages into Arrow: the same points as decode gives, and the same refusals."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_codec import (
    CodecError,
    Kind,
    Opaque,
    Point,
    check,
    decode,
    encode_frame,
    encode_point,
)
from backhaul_codec.bulk import column_batch
from backhaul_codec.bulk.columns import SCHEMA, Rejected, decode_columns
from backhaul_codec.subjects import edge_subject, event_subject, frame_subject, point_subject
from backhaul_codec.wire.envelope import seal, unseal
from tests.support import strategies

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa  # type: ignore[import-untyped]

NOON = 1_700_000_000_000_000_000


def doubles(batch: pa.RecordBatch) -> list[bytes]:
    """Return the raw bits of f64: to_pylist would go through Python and could quieten a NaN."""
    raw = batch.column("f64").to_numpy(zero_copy_only=False)
    nulls = batch.column("f64").is_null().to_pylist()
    return [
        b"" if null else struct.pack("<d", value) for value, null in zip(raw, nulls, strict=True)
    ]


def rows(batch: pa.RecordBatch) -> list[tuple[object, ...]]:
    """Return each row as (message, header, point that compares exactly)."""
    bits = doubles(batch)
    return [
        (
            row["message"],
            row["epoch"],
            row["seq"],
            row["clock"],
            row["dtype"],
            *_exact(row, bits[i]),
        )
        for i, row in enumerate(batch.to_pylist())
    ]


def _exact(row: dict[str, Any], bits: bytes) -> tuple[object, ...]:
    dtype = row["dtype"]
    held = [name for name in ("i64", "text", "data") if row[name] is not None]
    value: Any
    if dtype == 1:
        assert held == []
        value = struct.unpack("<d", bits)[0]
    elif dtype in (2, 3):
        assert (held, bits) == (["i64"], b"")
        value = row["i64"] % 2**64 if dtype == 3 else row["i64"]
    elif dtype in (4, 6):
        assert (held, bits) == (["text"], b"")
        value = row["text"] if dtype == 4 else Opaque(6, row["text"].encode())
    else:
        assert (held, bits) == (["data"], b"")
        value = row["data"] if dtype == 5 else Opaque(dtype, row["data"])
    return strategies.exact(
        Point(
            row["node"],
            row["type"],
            row["time"],
            value,
            row["key"],
            row["tombstone"],
            row["origin"],
        )
    )


def dtype_of(value: object) -> int:
    if isinstance(value, int):
        return 2 if value < 2**63 else 3
    if isinstance(value, Opaque):
        return value.dtype
    return {float: 1, str: 4, bytes: 5}[type(value)]


def expected(messages: list[bytes], names: list[tuple[str, str, str]]) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for index, (message, (node, type_, key)) in enumerate(zip(messages, names, strict=True)):
        got = decode(message, node=node, type=type_, key=key)
        found += [
            (index, got.epoch, got.seq, got.clock, dtype_of(p.value), *strategies.exact(p))
            for p in got.points
        ]
    return found


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.one_of(strategies.frames(), strategies.points()), st.integers(0, 2)),
        max_size=6,
    )
)
def test_columns_equal_decode_value_for_value(drawn: list[tuple[list[Point] | Point, int]]) -> None:
    messages, names, subjects = [], [], []
    for seq, (what, clock) in enumerate(drawn):
        if isinstance(what, Point):
            messages.append(encode_point(what, epoch=2**32 - 1, seq=seq))
            names.append((what.node, what.type, what.key))
            subjects.append(point_subject(what.node, what.type, what.key))
        else:
            messages.append(encode_frame(what, epoch=1, seq=2**64 - 1 - seq, clock=clock))
            names.append((what[0].node, "", ""))
            subjects.append("up.VID-001." + frame_subject(what[0].node))
    batch = decode_columns(messages, subjects=subjects)
    assert batch.schema == SCHEMA
    batch.validate(full=True)
    assert rows(batch) == expected(messages, names)


def test_frames_of_every_width_go_together() -> None:
    """Series indices, times and blob indices of one byte and of more, in one batch."""
    many = [Point("n", f"t{i}", NOON + i * i, f"text {i}", key=str(i)) for i in range(300)]
    few = [Point("n", "t", NOON + i, float(i)) for i in range(300)]
    wide = [Point("n", "t", time, i) for i, time in enumerate((-(2**63), 2**63 - 1, 0, -1))]
    messages = [encode_frame(points, epoch=0, seq=0) for points in (many, few, wide, many, few)]
    assert rows(decode_columns(messages)) == expected(messages, [("n", "", "")] * 5)


@pytest.mark.slow
def test_more_series_than_sixteen_bits_count() -> None:
    points = [Point("n", f"t{i % 997}", NOON, i, key=str(i % 991)) for i in range(70_000)]
    messages = [encode_frame(points[at : at + 35_000], epoch=0, seq=0) for at in (0, 35_000)]
    batch = decode_columns(messages)
    assert batch.column("i64").to_pylist() == list(range(70_000))
    assert batch.column("type").to_pylist() == [point.type for point in points]


def test_a_bad_message_is_set_aside_with_its_reason() -> None:
    good = encode_frame([Point("n", "t", NOON, 1.5)], epoch=0, seq=1)
    rejected: list[Rejected] = []
    batch = decode_columns([good, b"garbage", good], rejected=rejected)
    assert batch.column("message").to_pylist() == [0, 2]
    assert [(bad.index, bad.code) for bad in rejected] == [(1, "short")]
    with pytest.raises(CodecError, match="message 1") as caught:
        decode_columns([good, b"garbage", good])
    assert (caught.value.index, caught.value.code) == (1, "short")


def test_nothing_comes_from_nothing() -> None:
    assert decode_columns([]) == decode_columns([b""], rejected=[])
    assert decode_columns([]).schema == SCHEMA


def test_subjects_name_points_and_prove_frames() -> None:
    point = encode_point(Point("", "", NOON, 1), epoch=0, seq=0)
    frame = encode_frame([Point("gps", "lat", NOON, 1.5)], epoch=0, seq=0)
    subjects = [
        *(point_subject("gps", "fix", "a.b"), edge_subject("car", "gps", "weight")),
        *("up.V." + event_subject("link.up"), "r.42", "up.V.f.gps"),
    ]
    batch = decode_columns([point] * 4 + [frame], subjects=subjects)
    named = [(row["node"], row["type"], row["key"]) for row in batch.to_pylist()]
    assert named == [
        *(("gps", "fix", "a.b"), ("car>gps", "weight", ""), ("", "link.up", "")),
        *(("", "", "42"), ("gps", "lat", "")),
    ]
    rejected: list[Rejected] = []
    decode_columns(
        [frame, frame, point, frame], subjects=["f.imu", "p.a.b.%", "f.gps", "x"], rejected=rejected
    )
    assert [bad.code for bad in rejected] == ["node", "subject", "subject", "subject"]
    with pytest.raises(ValueError, match="1 subjects for 2"):
        decode_columns([frame, frame], subjects=["f.gps"])


def test_system_events_are_proven_and_give_no_row() -> None:
    event = encode_point(Point("", "", NOON, Opaque(6, b"{}")), epoch=0, seq=0)
    rejected: list[Rejected] = []
    batch = decode_columns(
        [event, event, event, event[:-1]],
        subjects=["e.heads", "up.V.e.boot", "up.V.n.gps.e.mark", "e.heads"],
        rejected=rejected,
    )
    assert [(row["message"], row["type"]) for row in batch.to_pylist()] == [(1, "boot")]
    assert [bad.index for bad in rejected] == [3]


def test_a_batch_past_what_arrow_counts_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_batch, "TEXT_BYTES_MAX", 99)
    message = encode_frame([Point("n", "t", NOON, "x" * 50)], epoch=0, seq=0)
    assert decode_columns([message]).num_rows == 1
    with pytest.raises(CodecError, match="fewer messages"):
        decode_columns([message] * 2)


@given(st.data(), strategies.frames(max_size=8))
def test_all_readers_refuse_the_same(data: st.DataObject, points: list[Point]) -> None:
    """The damage is done to the body and sealed again, else the crc alone would find it."""
    _, body = unseal(encode_frame(points, epoch=1, seq=2))
    message = seal(data.draw(strategies.damaged(body)) or b"\xa0", Kind.FRAME, 1, 2, "none")
    codes = {_code(decode, message), _code(check, message)}
    rejected: list[Rejected] = []
    batch = decode_columns([message], rejected=rejected)
    codes |= {bad.code for bad in rejected} or {None}
    assert len(codes) == 1
    if codes == {None}:
        got = decode(message).points
        assert [strategies.exact(point) for point in got] == [row[5:] for row in rows(batch)]


def _code(read: Callable[[bytes], object], message: bytes) -> str | None:
    try:
        read(message)
    except CodecError as error:
        return error.code
    return None

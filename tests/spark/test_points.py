"""Messages into rows of points: values bit for bit, bad ones set aside, days that make sense."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backhaul_codec import Opaque, Point, Value, encode_frame, encode_point
from backhaul_spark.decode import points as points_module
from backhaul_spark.decode.points import POINT_ROWS, decode_batch, partition_days, point_rows
from backhaul_spark.nats.messages import gap_batch, message_batch
from backhaul_spark.nats.offsets import GAP_RETENTION, Span
from backhaul_spark.nats.stored import holes
from tests.support.spark_frames import T0_NS, frame, stored, task
from tests.support.strategies import values

if TYPE_CHECKING:
    from pathlib import Path

DAY_NS = 86_400_000_000_000


def bits(value: Value) -> object:
    """Return something equal only where the value is the same to the bit."""
    if isinstance(value, float):
        return ("f64", struct.pack("<d", value))
    return (type(value).__name__, value)


def value_of(row: dict[str, object]) -> Value:
    """Return the value of a row of the points table."""
    dtype = row["dtype"]
    assert isinstance(dtype, int)
    if dtype == 1:
        value = row["value_f64"]
    elif dtype == 2:
        value = row["value_i64"]
    elif dtype == 3:
        value = int(str(row["value_i64"])) % 2**64
    elif dtype == 4:
        value = row["value_text"]
    elif dtype == 5:
        value = row["value_bytes"]
    elif dtype == 6:
        value = Opaque(6, str(row["value_text"]).encode())
    else:
        value = Opaque(dtype, bytes(row["value_bytes"]))  # type: ignore[call-overload]
    return value  # type: ignore[return-value]


@settings(max_examples=60)
@given(st.lists(values, min_size=1, max_size=20))
def test_values_survive_into_the_file_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, sent: list[Value]
) -> None:
    root = str(tmp_path_factory.mktemp("points"))
    report = task(root, 1, message_batch("UP_00", stored([frame(1, sent)])))
    [file] = report.files
    rows = pq.read_table(f"{root}/points/{file['path']}", partitioning=None).to_pylist()
    assert [row["index"] for row in rows] == list(range(len(sent)))
    assert [bits(value_of(row)) for row in rows] == [bits(value) for value in sent]


def test_a_double_born_as_float32_keeps_its_bits(tmp_path: Path) -> None:
    """PX4 logs are float32: their doubles end in zero bits, and must still."""
    sent = [struct.unpack("<f", struct.pack("<f", x))[0] for x in (0.1, 1e-30, -3.4e38, 7.0)]
    [file] = task(str(tmp_path), 1, message_batch("UP_00", stored([frame(1, sent)]))).files
    column = pq.read_table(tmp_path / "points" / file["path"]).column("value_f64")
    assert column.to_pylist() == sent


def test_a_batch_decodes_in_chunks_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = message_batch("UP_00", stored([frame(seq) for seq in range(1, 30)]))
    [whole] = decode_batch(batch)
    monkeypatch.setattr(points_module, "CHUNK_BYTES", 200)
    chunks = list(decode_batch(batch))
    assert len(chunks) > 3
    seqs = [seq for chunk in chunks for seq in chunk.points.column("seq").to_pylist()]
    assert seqs == whole.points.column("seq").to_pylist()
    indices = [index for chunk in chunks for index in chunk.points.column("index").to_pylist()]
    assert indices == [0, 1] * 29


def test_bad_messages_keep_a_row_with_the_reason() -> None:
    spoiled = bytearray(frame(3))
    spoiled[-1] ^= 0xFF
    bodies = [frame(1), b"", bytes(spoiled), frame(0), frame(4)]
    batch = message_batch("UP_00", stored(bodies))
    assert batch.column("code").to_pylist()[0] is None
    rows = [row for part in point_rows(batch) for row in part.to_pylist()]
    bad = {row["stream_seq"]: row["code"] for row in rows if row["code"]}
    assert bad.keys() == {2, 3, 4}
    assert (bad[2], bad[4]) == ("short", "identity")
    assert [row["seq"] for row in rows if not row["code"]] == [1, 1, 4, 4]


def test_a_strange_subject_is_a_reject_and_so_is_a_frame_of_another_node() -> None:
    odd = message_batch("UP_00", stored([frame(1)], device="no/device"))
    assert odd.column("code").to_pylist() == ["subject"]
    other = message_batch("UP_00", stored([frame(1, node="gps")]))
    [decoded] = decode_batch(other)
    assert list(decoded.rejected) == [0]
    assert decoded.points.num_rows == 0


def test_points_and_events_get_their_names_from_the_subject() -> None:
    body = encode_point(Point("gps", "fix", T0_NS, "3d", key="a.b"), epoch=1, seq=1)
    [decoded] = decode_batch(message_batch("UP_00", stored([body], leaf="p.gps.fix.a%2Eb")))
    [row] = decoded.points.to_pylist()
    assert (row["node"], row["type"], row["key"], row["letter"]) == ("gps", "fix", "a.b", "p")
    assert row["lane"] == "live"
    event = encode_point(Point("", "x", T0_NS, Opaque(6, b"{}")), epoch=1, seq=2)
    [decoded] = decode_batch(message_batch("UP_00", stored([event], leaf="e.boot")))
    [row] = decoded.points.to_pylist()
    assert (row["type"], row["letter"], row["value_text"]) == ("boot", "e", "{}")


def test_live_frames_are_rows_and_system_events_are_covered_without_one(tmp_path: Path) -> None:
    system = [
        encode_point(Point("", "", T0_NS, Opaque(6, b"{}")), epoch=1, seq=seq) for seq in (1, 2)
    ]
    batches = [
        message_batch("UP_00", stored([system[0]], leaf="e.heads")),
        message_batch("UP_00", stored([system[1]], leaf="e.mark", first_seq=2)),
        message_batch("UP_00", stored([frame(3, [1.5])], leaf="p.car.battery", first_seq=3)),
        message_batch("UP_00", stored([frame(4, [1.5])], leaf="p.battery", first_seq=4)),
    ]
    report = task(str(tmp_path), 1, *batches)
    rows = [
        row
        for file in report.files
        for row in pq.read_table(tmp_path / "points" / file["path"], partitioning=None).to_pylist()
    ]
    assert [(row["seq"], row["lane"], row["letter"], row["node"]) for row in rows] == [
        *((3, "live", "p", "car>battery"), (4, "live", "p", "battery"))
    ]
    facts = report.messages.to_pylist()
    assert [(fact["seq"], fact["points"]) for fact in facts] == [(1, 0), (2, 0), (3, 1), (4, 1)]
    assert not report.rejects


def test_a_nodes_own_lane_is_a_lane_of_its_own_numbers(tmp_path: Path) -> None:
    point = encode_point(Point("front left", "fix", T0_NS, "3d"), epoch=1, seq=2)
    seen = encode_point(Point("", "", T0_NS, Opaque(6, b"{}")), epoch=1, seq=3)
    prefix = "n.front%20left."
    bodies = {
        f"{prefix}f.front%20left": frame(1, [1.5], node="front left"),
        f"{prefix}p.front%20left.fix.%": point,
        f"{prefix}e.seen": seen,
        "f.battery": frame(1, [1.5]),
    }
    batches = [
        message_batch("UP_00", stored([body], leaf=leaf, first_seq=seq))
        for seq, (leaf, body) in enumerate(bodies.items(), 1)
    ]
    report = task(str(tmp_path), 1, *batches)
    rows = [
        row
        for file in report.files
        for row in pq.read_table(tmp_path / "points" / file["path"], partitioning=None).to_pylist()
    ]
    assert [(row["lane"], row["seq"], row["letter"], row["node"]) for row in rows] == [
        ("n_front%20left", 1, "f", "front left"),
        ("n_front%20left", 2, "p", "front left"),
        ("bulk", 1, "f", "battery"),
    ]
    facts = report.messages.to_pylist()
    assert [(fact["lane"], fact["seq"], fact["points"]) for fact in facts] == [
        ("n_front%20left", 1, 1), ("n_front%20left", 2, 1), ("n_front%20left", 3, 0), ("bulk", 1, 1),
    ]  # fmt: skip
    assert not report.rejects


def test_a_gap_is_a_row_of_its_own() -> None:
    batch = gap_batch(Span("UP_00", 5, 9, GAP_RETENTION))
    [part] = point_rows(batch)
    [row] = part.to_pylist()
    assert part.schema == POINT_ROWS
    assert (row["stream_seq"], row["missing"], row["code"]) == (5, 5, GAP_RETENTION)


@pytest.mark.parametrize(
    ("start_ns", "clock", "day"),
    [
        (T0_NS, 0, "2026-01-01"),
        (T0_NS, 1, "2026-01-01"),
        (T0_NS, 2, "1970-01-01"),  # the device did not know the time
        (0, 0, "1970-01-01"),
        (-(2**62), 0, "1970-01-01"),
        (946_684_800_000_000_000, 0, "2000-01-01"),
        (946_684_799_999_999_999, 0, "1970-01-01"),
        (T0_NS + 61 * DAY_NS, 0, "1970-01-01"),  # more than a day after the hub stored it
        (2**62, 0, "1970-01-01"),
    ],
)
def test_a_point_lies_in_the_day_of_its_time_if_that_can_be_true(
    start_ns: int, clock: int, day: str
) -> None:
    body = frame(1, [1.0], start_ns=start_ns, clock=clock)
    [decoded] = decode_batch(message_batch("UP_00", stored([body])))
    [found] = partition_days(decoded.points).tolist()
    assert str(np.datetime64(found, "D")) == day
    assert decoded.points.column("time_ns").to_pylist() == [start_ns]


def test_a_frame_over_midnight_gives_two_files(tmp_path: Path) -> None:
    body = frame(1, [1.0, 2.0, 3.0], start_ns=T0_NS + DAY_NS - 1, step_ns=1)
    report = task(str(tmp_path), 1, message_batch("UP_00", stored([body])))
    assert {file["partition"]["date"]: file["rows"] for file in report.files} == {
        "2026-01-01": 1,
        "2026-01-02": 2,
    }


def test_many_days_do_not_hold_many_files_open(tmp_path: Path) -> None:
    points = [Point("battery", "soc", T0_NS - day * DAY_NS, float(day)) for day in range(100)]
    body = encode_frame(points, epoch=1, seq=1)
    report = task(str(tmp_path), 1, message_batch("UP_00", stored([body])))
    assert len({file["partition"]["date"] for file in report.files}) == 100


def test_holes_between_sequences() -> None:
    assert list(holes([3, 4, 7], 2)) == [(2, 2), (5, 6)]
    assert list(holes([2, 3, 4], 2)) == []
    assert list(holes([], 2)) == []


@pytest.mark.parametrize(
    ("stream", "subject", "lane"),
    [
        ("IMPORT", "import.VID-001.f.battery", "import"),
        ("UP_00", "up.VID-001.f.battery", "bulk"),
        ("UP_00", "import.VID-001.f.battery", None),
        ("IMPORT", "up.VID-001.f.battery", None),
        ("IMPORT", "import.VID-001.p.a.b.c", None),
    ],
)
def test_what_was_imported_stands_in_its_own_stream_and_nowhere_else(
    stream: str, subject: str, lane: str | None
) -> None:
    message = stored([frame(1)])
    message.subjects = [subject]
    found = message_batch(stream, message).to_pylist()[0]
    assert (found["lane"], found["code"]) == ((lane, None) if lane else (None, "subject"))

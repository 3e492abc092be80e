"""What the hub makes of one message of UP, garbage included."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_codec import CodecError, Opaque, Point, encode_frame, encode_point
from backhaul_codec.protocol.words import ClockWord, EpochWord, MarkWord, Receipt, Word
from backhaul_hub.continuity.examine import LAYOUT_BYTES_MAX, SEQ_MAX, UnreadableError, examine
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.db.store import Registry
from backhaul_hub.lane_records.device_words import WordBook
from backhaul_hub.lane_records.device_words_store import marks_of

if TYPE_CHECKING:
    from pathlib import Path

FRAME = encode_frame([Point("battery", "soc", 1, 81.5)], epoch=7, seq=3)


def receipt(value: object) -> bytes:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return encode_point(Point("agent", "receipt", 1, Opaque(6, data)), epoch=7, seq=4)


def test_a_frame_has_its_place_in_bulk() -> None:
    examined = examine("up.VID-001.f.battery", FRAME)
    assert (examined.key, examined.seq) == (LaneKey("VID-001", "bulk", 7), 3)


def test_a_frame_is_read_once_unless_it_is_large() -> None:
    examined = examine("up.VID-001.f.battery", FRAME)
    assert examined.frame_layout() is examined.layout
    large = encode_frame(
        [Point("battery", "soc", 1, "x" * LAYOUT_BYTES_MAX)], epoch=7, seq=3, compression="none"
    )
    examined = examine("up.VID-001.f.battery", large)
    assert examined.layout is None, "a batch of them would fill the memory"
    assert examined.frame_layout().n == 1


def test_a_point_has_no_layout() -> None:
    body = encode_point(Point("battery", "alarm", 1, "hot"), epoch=7, seq=1)
    with pytest.raises(CodecError, match="no frame"):
        examine("up.VID-001.p.battery.alarm.%", body).frame_layout()


def test_a_point_has_its_place_in_live() -> None:
    body = encode_point(Point("battery", "alarm", 1, "hot"), epoch=7, seq=1)
    examined = examine("up.VID-001.p.battery.alarm.%", body)
    assert (examined.key, examined.seq) == (LaneKey("VID-001", "live", 7), 1)


@pytest.mark.parametrize(
    ("leaf", "lane"),
    [("p.battery", "live"), ("p.car.battery", "live"), ("n.battery.f.battery", "n_battery")],
)
def test_a_frame_has_its_place_in_other_lanes(leaf: str, lane: str) -> None:
    examined = examine(f"up.VID-001.{leaf}", FRAME)
    assert (examined.key, examined.seq) == (LaneKey("VID-001", lane, 7), 3)


def test_a_receipt_may_speak_of_a_nodes_lane() -> None:
    body = receipt({"lane": "n_gps", "epoch": 7, "lo": 2, "hi": 5, "reason": "full"})
    for leaf in ("e.receipt", "n.gps.e.receipt"):
        said = examine(f"up.VID-001.{leaf}", body).word
        assert said == Receipt("n_gps", 7, 2, 5, "full")


def said(kind: str, value: object, epoch: int = 7) -> Word | None:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    body = encode_point(Point("agent", kind, 99, Opaque(6, data)), epoch=epoch, seq=4)
    return examine(f"up.VID-001.e.{kind}", body).word


def test_what_a_vehicle_says_of_itself() -> None:
    receipt = {"lane": "bulk", "epoch": 5, "lo": 2, "hi": 5, "reason": "corrupt row"}
    assert said("receipt", receipt) == Receipt("bulk", 5, 2, 5, "corrupt row")
    mark = {"epoch": 7, "lanes": {"live": 3, "bulk": 0}, "why": "hour"}
    assert said("mark", mark) == MarkWord(99, 7, {"live": 3, "bulk": 0}, "hour")
    epoch = {"old": 5, "new": 7, "why": "older copy", "lanes": {"live": 2}}
    assert said("epoch", epoch) == EpochWord(99, 5, 7, "older copy", {"live": 2})
    clock = {"quality": "holdover", "offset_ns": -5, "error_ns": 7, "boot": 3}
    assert said("clock", clock) == ClockWord(99, "holdover", -5, 7, 3)
    clock = {"quality": "unset", "offset_ns": 0, "error_ns": None, "boot": "5ac1"}
    assert said("clock", clock) == ClockWord(99, "unset", 0, None, "5ac1")
    assert said("seen", {"hub_ns": 1}) is None
    assert said("doors", b"{") is None, "a program's own event says nothing to continuity"


async def test_hub_db_takes_the_largest_numbers_that_are_no_garbage(tmp_path: Path) -> None:
    """Else the control plane would end at such a message, at each start again."""
    most = (1 << 63) - 1
    clock = {"quality": "synced", "offset_ns": -most, "error_ns": most, "boot": 1 << 63}
    book = WordBook(Continuity())
    for kind, value in (("clock", clock), ("mark", {"epoch": 7, "lanes": {"live": SEQ_MAX}})):
        word = said(kind, value)
        assert word is not None
        book.take(LaneKey("VID-001", "live", 7), SEQ_MAX, word, 99)
    async with await Registry.open(tmp_path / "hub.db") as registry:
        await registry.write(book.take_changes())
        assert [mark.seq for mark in await marks_of(registry, "VID-001")] == [SEQ_MAX]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("mark", {"epoch": 8, "lanes": {}}),
        ("mark", {"epoch": 7, "lanes": {"up": 1}}),
        ("mark", {"epoch": 7, "lanes": {"live": -1}}),
        ("mark", {"epoch": 7}),
        ("epoch", {"old": 7, "new": 7}),
        ("clock", {"quality": "fine"}),
        ("clock", {"quality": "synced", "offset_ns": 1 << 63}),
        ("clock", {"quality": "synced", "offset_ns": -(1 << 63) - 1}),
        ("clock", {"quality": "synced", "error_ns": 10**30}),
    ],
)
def test_a_word_that_is_none_is_garbage_that_keeps_its_place(kind: str, value: object) -> None:
    with pytest.raises(UnreadableError) as caught:
        said(kind, value)
    assert caught.value.code == kind
    assert caught.value.place == (LaneKey("VID-001", "live", 7), 4)


def test_what_came_as_it_was_sealed_keeps_its_place_and_what_was_damaged_does_not() -> None:
    with pytest.raises(UnreadableError) as caught:
        examine("up.VID-001.f.motor", FRAME)  # another node's
    assert caught.value.place == (LaneKey("VID-001", "bulk", 7), 3)
    for damaged in (FRAME[:-1], FRAME[:-1] + bytes([FRAME[-1] ^ 1])):
        with pytest.raises(UnreadableError) as caught:
            examine("up.VID-001.f.battery", damaged)
        assert caught.value.place is None


@pytest.mark.parametrize(
    ("subject", "body", "code"),
    [
        ("up.VID-001.f.battery", b"", None),
        ("up.VID-001.f.battery", b"garbage", None),
        ("up.VID-001.f.battery", FRAME[:-1], None),
        ("up.VID-001.f.motor", FRAME, None),
        ("up.VID-001", FRAME, "subject"),
        ("up.VID-001.x.battery", FRAME, "subject"),
        ("up.VID-001.p.battery.soc.%", FRAME, "subject"),
        ("up.VID-001.p.motor", FRAME, "node"),
        ("up.VID-001.n.motor.f.battery", FRAME, "subject"),
        (
            "up.VID-001.f.battery",
            encode_frame([Point("battery", "soc", 1, 2.0)], epoch=0, seq=0),
            "no_position",
        ),
        (
            "up.VID-001.f.battery",
            encode_frame([Point("battery", "soc", 1, 2.0)], epoch=7, seq=SEQ_MAX + 1),
            "no_position",
        ),
        ("up.VID-001.e.receipt", receipt(b"{"), "receipt"),
        ("up.VID-001.e.receipt", receipt({"lane": "bulk"}), "receipt"),
        (
            "up.VID-001.e.receipt",
            receipt({"lane": "a b", "epoch": 7, "lo": 1, "hi": 2, "reason": ""}),
            "receipt",
        ),
        (
            "up.VID-001.e.receipt",
            receipt({"lane": "bulk", "epoch": 7, "lo": 5, "hi": 2, "reason": ""}),
            "receipt",
        ),
    ],
)
def test_garbage_is_named(subject: str, body: bytes, code: str | None) -> None:
    with pytest.raises(UnreadableError) as caught:
        examine(subject, body)
    assert caught.value.reason
    assert code is None or caught.value.code == code


@given(st.text(), st.binary(max_size=200))
def test_nothing_else_escapes(subject: str, body: bytes) -> None:
    for candidate in (subject, "up.VID-001.f.battery", "up.VID-001.e.receipt"):
        with contextlib.suppress(UnreadableError):
            examine(candidate, body)

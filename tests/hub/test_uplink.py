"""What the hub makes of one message of UP, garbage included."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_codec import Opaque, Point, encode_frame, encode_point
from backhaul_hub.continuity import LaneKey
from backhaul_hub.uplink import UnreadableError, examine

FRAME = encode_frame([Point("battery", "soc", 1, 81.5)], epoch=7, seq=3)


def receipt(value: object) -> bytes:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return encode_point(Point("agent", "receipt", 1, Opaque(6, data)), epoch=7, seq=4)


def test_a_frame_has_its_place_in_bulk() -> None:
    examined = examine("up.VID-001.f.battery", FRAME)
    assert (examined.key, examined.seq) == (LaneKey("VID-001", "bulk", 7), 3)


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
        said = examine(f"up.VID-001.{leaf}", body).receipt
        assert said is not None
        assert said.key == LaneKey("VID-001", "n_gps", 7)


def test_a_receipt_speaks_for_its_own_device_only() -> None:
    body = receipt({"lane": "bulk", "epoch": 7, "lo": 2, "hi": 5, "reason": "corrupt row"})
    said = examine("up.VID-001.e.receipt", body).receipt
    assert said is not None
    assert (said.key, said.low, said.high) == (LaneKey("VID-001", "bulk", 7), 2, 5)
    assert said.reason == "corrupt row"


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

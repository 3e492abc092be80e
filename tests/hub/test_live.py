"""What is told along the tree beside points: where, and each event once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from backhaul_codec import Opaque, Point, encode_point
from backhaul_codec.points import JSON
from backhaul_codec.state.merge import HeadKey
from backhaul_codec.subjects import parse_uplink
from backhaul_hub.broadcast.events import LiveEvents, told_document
from backhaul_hub.broadcast.points import up_subjects
from backhaul_hub.continuity.examine import Examined
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.shadow.bucket import Revision

if TYPE_CHECKING:
    from collections.abc import Iterable

    from backhaul_hub.broadcast.points import Told

DEVICE = "VID-001"


class Listener:
    """Hears what is told."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        self.events = LiveEvents(self.hear, lambda device: (device, "plant-7"))

    def hear(self, some: Iterable[Told]) -> None:
        self.told += some

    def take(self, leaf_subject: str, value: object, seq: int, *, is_new: bool = True) -> None:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        point = Point("", "", 1_000_000_000, Opaque(JSON, data))
        uplink = parse_uplink(f"up.{DEVICE}.{leaf_subject}")
        body = encode_point(point, epoch=1, seq=seq)
        self.events.on_message(Examined(LaneKey(DEVICE, "live", 1), seq, uplink, body), is_new)


@pytest.fixture
def listener() -> Listener:
    return Listener()


def test_an_event_is_told_once_it_is_stored_and_not_again(listener: Listener) -> None:
    listener.take("e.app.link%2Eup", {"reason": "test"}, 5)
    assert listener.told == []
    listener.events.stored()
    listener.take("e.app.link%2Eup", {"reason": "test"}, 5, is_new=False)
    listener.events.stored()
    ((subjects, payload),) = listener.told
    assert subjects == (
        "up.VID-001.VID-001.$.event.link%2Eup",
        "up.plant-7.VID-001.$.event.link%2Eup",
    )
    assert json.loads(payload) == {
        "vid": DEVICE,
        "timestamp": "1970-01-01T00:00:01Z",
        "time": 1_000_000_000,
        "kind": "link.up",
        "reason": "test",
        "epoch": 1,
        "seq": 5,
    }


@pytest.mark.parametrize("value", [[], 1, b"{", b"[" * 100_000])
def test_what_is_no_event_is_not_told(listener: Listener, value: object) -> None:
    listener.take("e.app.armed", value, 1)
    listener.take("e.mark", {}, 2)  # the agent's own
    listener.events.stored()
    assert listener.told == []


def test_half_a_pair_of_surrogates_is_told_as_a_question_mark(listener: Listener) -> None:
    """JSON may name one, as JavaScript does of a text that was cut; no UTF-8 can."""
    listener.take("e.app.armed", b'{"data": {"name": "\\ud83d", "\\uDE00": "\\ud83d\\ude00"}}', 1)
    listener.events.stored()
    ((_, payload),) = listener.told
    assert json.loads(payload)["data"] == {"name": "?", "?": "\U0001f600"}


def test_no_listener_to_points_takes_a_document_for_one() -> None:
    revision = Revision(3, "2026-05-01T12:00:00Z", None)
    ((subject,), payload) = told_document(DEVICE, "desired", revision, ["plant-7"])
    assert subject == "up.plant-7.VID-001.$.shadow.desired"
    assert json.loads(payload)["body"] is None
    (point,) = up_subjects(DEVICE, HeadKey("", DEVICE, "$", ""), ["plant-7"])
    assert subject.count(".") > point.count(".")

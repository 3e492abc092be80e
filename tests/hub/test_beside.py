"""What is said beside DOWN, and when, without a server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError

from backhaul_codec.protocol.push import WAKE, terse
from backhaul_hub.device import Device
from backhaul_hub.links.beside import (
    LINKED_S,
    TERSE_S_MIN,
    WAKES_PER_S,
    WATERMARK_MESSAGES,
    WATERMARK_S_MIN,
    Beside,
    Said,
)
from backhaul_hub.links.speaker import LOOK_S, Speaker
from backhaul_hub.nats.jetstream import JetStreamApi
from tests.support.agent_clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Iterable

DEVICE = "VID-001"


def watermark(seq: int, **words: int) -> bytes:
    return json.dumps({"epoch": 7, "seq": seq, "hash": "", **words}).encode()


def compact(seq: int, **words: int) -> bytes:
    """A watermark as the control plane writes it."""
    return msgspec.json.encode({"epoch": 7, "seq": seq, "hash": "00ffab120000", **words})


def told(beside: Beside, body: bytes, now_s: float) -> bool:
    subject = f"in.{DEVICE}.s.watermark.bulk"
    return beside.stored(subject, body, now_s) == Said(DEVICE, "s.watermark.bulk", body)


def test_what_down_has_taken_is_said_at_once_as_in_in() -> None:
    beside = Beside()
    assert beside.stored("in.VID-001.c.ab", b"{}", 0.0) == Said("VID-001", "c.ab", b"{}")
    assert beside.stored("in.VID-001.p.lamp.on.%", b"1", 0.0) == Said(
        "VID-001", "p.lamp.on.%", b"1"
    )
    own = "n.gps.p.gps.mode.%"
    assert beside.stored(f"in.VID-001.{own}", b"1", 0.0) == Said("VID-001", own, b"1")


@pytest.mark.parametrize("subject", ["in.VID-001", "quarantine.up.VID-001.f", "in", ""])
def test_what_no_in_brings_is_not_said(subject: str) -> None:
    assert Beside().stored(subject, b"", 0.0) is None


def test_watermarks_are_said_now_and_then_and_the_newest_in_the_end() -> None:
    beside = Beside()
    assert told(beside, watermark(1), 0.0)
    assert not told(beside, watermark(2), 5.0)
    assert not told(beside, watermark(3), 6.0)
    assert beside.due(WATERMARK_S_MIN - 0.1) == []
    assert beside.due(WATERMARK_S_MIN) == [Said(DEVICE, "s.watermark.bulk", watermark(3))]
    assert beside.due(WATERMARK_S_MIN + 100) == []
    assert not told(beside, watermark(4), WATERMARK_S_MIN + 1)


def test_a_watermark_that_its_vehicle_waits_for_is_said_at_once() -> None:
    beside = Beside()
    assert told(beside, watermark(1), 0.0)
    beside.expect(DEVICE, "bulk", 7, 5)
    assert not told(beside, watermark(4), 1.0), "it does not go that far"
    assert told(beside, watermark(6), 2.0)
    assert not told(beside, watermark(7), 3.0), "the next one waits as ever"


def test_one_that_waits_already_is_said_as_soon_as_somebody_waits_for_it() -> None:
    beside = Beside()
    assert told(beside, watermark(1), 0.0)
    assert not told(beside, watermark(6), 1.0)
    beside.expect(DEVICE, "live", 7, 5)
    beside.expect(DEVICE, "bulk", 8, 5)
    assert beside.due(1.5) == []
    beside.expect(DEVICE, "bulk", 7, 5)
    assert beside.due(1.5) == [Said(DEVICE, "s.watermark.bulk", watermark(6))]
    beside.expect(DEVICE, "bulk", 7, 6)
    assert not told(beside, watermark(7), 2.0), "what was said already is waited for no more"


def test_what_is_waited_for_outlasts_a_word_that_must_not_wait() -> None:
    beside = Beside()
    assert told(beside, watermark(1), 0.0)
    beside.expect(DEVICE, "bulk", 7, 5)
    assert told(beside, watermark(1, fork=1), 1.0)
    assert told(beside, watermark(5, fork=1), 2.0)


@pytest.mark.parametrize(
    "body",
    [
        watermark(10 + WATERMARK_MESSAGES),
        watermark(9),
        watermark(10, epoch=8),
        watermark(10, fork=1),
        b"x",
    ],
)
def test_a_watermark_that_says_more_is_said_at_once(body: bytes) -> None:
    beside = Beside()
    assert told(beside, watermark(10), 0.0)
    assert not told(beside, watermark(11), 0.5)
    assert told(beside, body, 1.0)


def test_a_word_on_the_same_seq_does_not_put_off_the_next() -> None:
    """A gap that is filled: its vehicle waits for the watermark to move."""
    beside = Beside()
    assert told(beside, watermark(5), 0.0)
    assert told(beside, watermark(5, fork=1), 7.0)
    assert not told(beside, watermark(13, fork=1), 8.0)
    assert beside.due(WATERMARK_S_MIN) == [Said(DEVICE, "s.watermark.bulk", watermark(13, fork=1))]


def test_a_vehicle_that_reads_terse_watermarks_gets_them_and_more_seldom() -> None:
    beside = Beside()
    subject, lane = f"in.{DEVICE}.s.watermark.bulk", "s.watermark.bulk"
    said = {seq: terse(lane, compact(seq)) for seq in (1, 3)}
    assert beside.terse(DEVICE, True)
    assert beside.stored(subject, compact(1), 0.0) == Said(DEVICE, *said[1])  # type: ignore[misc]
    beside.linked(DEVICE, 1.0)
    assert beside.stored(subject, compact(1), 1.0) == Said(DEVICE, *said[1])  # type: ignore[misc]
    assert beside.stored(subject, compact(3), 2.0) is None
    assert beside.due(TERSE_S_MIN) == [Said(DEVICE, WAKE, b"")]
    assert beside.due(1.0 + TERSE_S_MIN) == [Said(DEVICE, *said[3])]  # type: ignore[misc]
    assert beside.stored(subject, compact(4, fork=1), 21.5) == Said(
        DEVICE, lane, compact(4, fork=1)
    )
    assert not beside.terse(DEVICE, False)
    assert beside.stored(subject, compact(4), 22.0) == Said(DEVICE, lane, compact(4))


def test_a_link_that_came_up_is_told_all_anew_and_woken() -> None:
    beside = Beside()
    assert told(beside, watermark(1), 0.0)
    assert not told(beside, watermark(2), 1.0)
    beside.linked(DEVICE, 2.0)
    assert told(beside, watermark(2), 2.0)
    assert beside.due(2.0) == []
    assert beside.due(2.0 + LINKED_S) == [Said(DEVICE, WAKE, b"")]
    assert beside.due(100.0) == []


def test_a_link_that_is_gone_is_told_nothing() -> None:
    beside = Beside()
    told(beside, watermark(1), 0.0)
    told(beside, watermark(2), 1.0)
    beside.linked("VID-002", 1.0)
    beside.gone("VID-002")
    beside.gone(DEVICE)
    assert beside.due(100.0) == []


def test_whoever_may_have_missed_a_word_is_woken_if_its_link_is_up() -> None:
    beside = Beside()
    for device in ("VID-001", "VID-002", "VID-003"):
        beside.linked(device, 1.0)
    assert len(beside.due(1.1 + LINKED_S)) == 3
    beside.gone("VID-002")
    beside.wake_all(8.0)
    assert [said.device for said in beside.due(8.1)] == ["VID-001", "VID-003"]


def test_a_fleet_is_woken_bit_by_bit_each_once_and_whoever_comes_meanwhile_behind_it() -> None:
    """As the control plane starts, or is connected again: each wake has a vehicle source DOWN."""
    beside, fleet = Beside(), [f"VID-{number:05}" for number in range(10_000)]
    for device in fleet:
        beside.linked(device, 0.0)
    woken: list[str] = []
    for second in range(160):
        if second == 30:
            beside.wake_all(
                30.0
            )  # the connection was lost: who was woken before is again, behind the rest
        if second == 50:
            beside.linked("VID-NEW", 50.0)
        if second == 55:
            beside.gone(fleet[-1])
        due = [said.device for said in beside.due(float(second))]
        assert len(due) <= WAKES_PER_S + 1
        woken += due
    assert woken[: len(fleet) - 1] == fleet[:-1]
    again = woken[len(fleet) - 1 :]
    assert again == [*fleet[: len(again) - 1], "VID-NEW"]
    assert len(again) == pytest.approx((29 - LINKED_S) * WAKES_PER_S, abs=2)


class Wire:
    """A connection that takes messages, or fails."""

    def __init__(self) -> None:
        self.said: list[tuple[str, bytes]] = []
        self.fails = False
        self.stats = {"reconnects": 0}

    async def publish_many(self, messages: Iterable[tuple[str, bytes, bytes]]) -> None:
        if self.fails:
            raise NatsError
        self.said += [(subject, body) for subject, _, body in messages]


async def test_a_device_that_could_not_be_spoken_to_is_woken_later() -> None:
    wire, clock, api = Wire(), FakeClock(), JetStreamApi(Client())
    known = {DEVICE: Device(DEVICE, "tok", "key", 0)}
    speaker = Speaker(clock, known.get)
    speaker.start(wire, api)  # type: ignore[arg-type]
    for subject in ("in.VID-001.c.1", "in.VID-002.c.1", "fleet.prod.veh.VID-001.x"):
        await api.on_published([(subject, b"{}")])
    assert wire.said == [("w.VID-001.tok.c.1", b"{}")]
    wire.fails = True
    await api.on_published([("in.VID-001.c.2", b"{}")])
    assert speaker.beside.due(clock.monotonic_s()) == []
    clock.advance(LOOK_S)
    assert speaker.beside.due(clock.monotonic_s()) == [Said(DEVICE, WAKE, b"")]

"""Which watermarks are told: what is news, and what only seems to be."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from backhaul_codec.ranges import RangeSet
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.errors import HubError
from backhaul_hub.uplink.notify import WatermarkNotifier
from backhaul_hub.uplink.standing_requests import StandingRequest
from tests.hub.told_hub import KEY, Hub, OneByOne
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_watermark_is_told_when_it_has_risen_or_has_truly_sunk() -> None:
    hub = Hub(1, 2, 3)
    hub.settled = False
    assert hub.tell() == {KEY: 3}
    assert hub.tell() == {}
    hub.continuity.restate(KEY, RangeSet([(1, 1)]))
    assert hub.tell() == {}  # it may only seem so
    hub.settled = True
    assert hub.tell() == {KEY: 1}
    hub.continuity.arrived(KEY, 2, 10, 1)
    assert hub.tell() == {KEY: 2}


def test_a_lane_that_was_lost_whole_is_told_of_after_a_restart_too() -> None:
    hub = Hub(2)  # its first message is missing
    hub.settled = False
    assert hub.tell() == {}
    hub.settled = True
    assert hub.tell() == {KEY: 0}
    assert hub.tell() == {}


def test_a_device_whose_source_was_set_up_is_told_its_watermarks_again() -> None:
    hub = Hub(1, 2)
    other = LaneKey("VID-001", "live", 8)
    hub.continuity.arrived(other, 1, 10, 1)
    assert hub.tell() == {KEY: 2, other: 1}
    hub.notifier.tell_again("VID-002")
    assert hub.tell() == {}
    hub.notifier.tell_again("VID-001")
    assert hub.tell() == {KEY: 2, other: 1}
    assert hub.tell() == {}


@pytest.mark.parametrize(
    "again", [WatermarkNotifier.forget, lambda notifier: notifier.tell_again("VID-001")]
)
async def test_what_is_to_be_told_again_while_it_is_told_is_told_again(
    again: Callable[[WatermarkNotifier], None],
) -> None:
    hub, told = Hub(1, 2), []

    class Down(OneByOne):
        def hear(self, subject: str, body: bytes) -> None:
            assert subject == "in.VID-001.s.watermark.bulk"
            told.append(json.loads(body)["seq"])
            if len(told) == 1:
                again(hub.notifier)

    await tells_until(hub, Down(), lambda: len(told) == 2)
    assert told == [2, 2]


async def test_a_device_that_waits_is_told_at_once_and_no_other() -> None:
    hub, told = Hub(1, 2), []
    other = LaneKey("VID-002", "bulk", 3)
    hub.continuity.arrived(other, 1, 10, 1)
    hub.notifier.devices = lambda: ["VID-001", "VID-002"]

    class Down(OneByOne):
        def hear(self, subject: str, body: bytes) -> None:
            told.append((subject, json.loads(body)["seq"]))

    hub.notifier._api = Down()
    task = asyncio.create_task(hub.notifier.tell_hurried())
    try:
        hub.notifier.hurry("VID-001")
        await until(lambda: len(told) == 1, "the first word")
        hub.continuity.arrived(KEY, 3, 10, 1)
        hub.notifier.hurry("VID-001")
        await until(lambda: len(told) == 2, "the second word")
    finally:
        task.cancel()
        await asyncio.wait([task])
    assert told == [("in.VID-001.s.watermark.bulk", 2), ("in.VID-001.s.watermark.bulk", 3)]
    assert hub.tell() == {other: 1}


async def test_what_could_not_be_told_is_as_untold_as_before() -> None:
    hub, told = Hub(1, 2), []
    hub.tell()
    hub.continuity.arrived(KEY, 3, 10, 1)

    class Down(OneByOne):
        def hear(self, subject: str, body: bytes) -> None:
            told.append(json.loads(body)["seq"])
            if len(told) == 1:
                hub.settled = False
                hub.continuity.restate(KEY, RangeSet([(1, 1)]))
                raise HubError("not now")

    await tells_until(hub, Down(), lambda: not hub.settled)
    assert hub.tell() == {}  # it may only seem so
    hub.settled = True
    assert hub.tell() == {KEY: 1}


def test_of_a_device_of_which_nothing_is_new_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    hub, asked = Hub(1, 2), list[str]()
    current = hub.continuity.current_keys

    def ask(device: str) -> list[LaneKey]:
        asked.append(device)
        return current(device)

    monkeypatch.setattr(hub.continuity, "current_keys", ask)
    assert hub.tell() == {KEY: 2}
    asked.clear()
    assert hub.tell() == {}
    assert asked == []
    hub.continuity.end("VID-001", KEY.epoch)  # which touches no lane
    assert hub.tell() == {}
    assert asked == ["VID-001"]


def test_a_device_that_may_connect_again_is_told_what_it_missed() -> None:
    hub = Hub(1, 2)
    hub.notifier.devices = list
    assert hub.tell() == {}
    hub.notifier.devices = lambda: ["VID-001"]
    assert hub.tell() == {KEY: 2}


async def test_what_cannot_be_told_is_logged_once_for_each_trouble() -> None:
    hub, troubles = Hub(1, 2), ["no leader", "no leader", "", "no leader", "no leader", "no disk"]

    class Down(OneByOne):
        def hear(self, subject: str, body: bytes) -> None:
            trouble = troubles.pop(0) if len(troubles) > 1 else troubles[0]
            if trouble:
                raise HubError(trouble)
            hub.continuity.arrived(KEY, 3, 10, 1)

    with capture_logs() as logs:
        await tells_until(hub, Down(), lambda: len(logs) >= 4)
    assert [each.get("error") for each in logs] == ["no leader", None, "no leader", "no disk"]
    assert logs[1]["event"] == "recovered"


async def tells_until(hub: Hub, down: Any, condition: Callable[[], bool]) -> None:
    """Have it tell its watermarks to `down` until a condition holds."""
    hub.notifier._api = down
    telling = asyncio.create_task(hub.notifier.tell_watermarks(0.0))
    try:
        await until(condition)
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)


async def test_a_request_names_the_machine_that_may_give_up_and_is_made_anew_for_another() -> None:
    hub, asked = Hub(1, 3), []
    machine: list[str | None] = [None]

    class Down(OneByOne):
        def hear(self, subject: str, body: bytes) -> None:
            assert subject == "in.VID-001.s.resend.bulk"
            asked.append(json.loads(body))

    hub.notifier._api = Down()
    hub.notifier.answerer = lambda device: machine[0]
    await hub.notifier._ask("VID-001", "bulk", 7, ((2, 2),))
    machine[0] = "a1"
    await asks_until(hub, lambda: len(asked) == 2)
    machine[0] = ""  # another one was heard: what stands in DOWN may name none
    await asks_until(hub, lambda: len(asked) == 3)
    await hub.notifier._ask("VID-001", "bulk", 7, ())
    machine[0] = "b2"
    await asks_until(hub, lambda: True)
    assert [each.get("machine") for each in asked] == [None, "a1", "", ""]
    assert [each["ranges"] for each in asked] == [[[2, 2]]] * 3 + [[]]


async def test_a_request_of_an_earlier_control_plane_is_made_anew_for_another_machine() -> None:
    """Its vehicle may not have read it: the machine that it names would give up what a clone has."""
    hub, asked = Hub(1, 3), []
    hub.requests = {("VID-001", "bulk"): StandingRequest(7, ((2, 2),), "a1")}
    machine = "a1"

    class Down(OneByOne):
        def hear(self, subject: str, body: bytes) -> None:
            asked.append((subject, json.loads(body)))

    hub.notifier._api = Down()
    hub.notifier.answerer = lambda device: machine
    await asks_until(hub, lambda: bool(hub.notifier._asked))
    assert asked == []
    machine = ""
    await asks_until(hub, lambda: len(asked) == 1)
    [(subject, words)] = asked
    assert subject == "in.VID-001.s.resend.bulk"
    assert (words["ranges"], words["machine"]) == ([[2, 2]], "")
    hub.requests = {("VID-009", "bulk"): StandingRequest(7, ((2, 2),), "a1")}  # removed since
    hub.notifier._asked.clear()
    await asks_until(hub, lambda: bool(hub.notifier._asked))
    assert len(asked) == 1


async def asks_until(hub: Hub, condition: Callable[[], bool]) -> None:
    asking = asyncio.create_task(hub.notifier.ask_for_gaps())
    try:
        await asyncio.sleep(0)
        await until(condition)
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)

"""Which former epochs a vehicle is told of: where something of them is news, and all there is to say."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from backhaul_codec.ranges import RangeSet
from backhaul_hub.continuity.chain import Fork, Watermark
from backhaul_hub.continuity.former_epochs import EPOCHS_MAX, FormerEpochs
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.errors import HubError
from backhaul_hub.uplink.notify import WatermarkNotifier
from tests.hub.told_hub import KEY, Hub, OneByOne
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

PLACE = KEY.device, KEY.lane
LATER = KEY._replace(epoch=9)


def held(seq: int) -> Watermark:
    """Return what is told of an epoch that is over, whose messages carry no hashes."""
    return Watermark(seq, b"", Fork.OVER)


def two_epochs() -> Hub:
    """Return a hub that holds three messages of an epoch that is over, and one of the next."""
    hub = Hub(1, 2, 3)
    hub.continuity.arrived(LATER, 1, 10, 2)
    hub.continuity.end(KEY.device, KEY.epoch)
    return hub


def test_news_is_told_once_and_what_falls_is_news() -> None:
    hub = two_epochs()
    former = FormerEpochs(hub.continuity)
    assert former.untold(["VID-001"]) == {PLACE: {7: held(3)}}
    former.told(PLACE, {7: held(3)})
    assert former.untold(["VID-001"]) == {}
    hub.continuity.restate(KEY, RangeSet([(1, 1)]))
    assert former.untold(["VID-001"]) == {PLACE: {7: held(1)}}
    former.told(PLACE, {7: held(1)})
    agains: list[Callable[[], None]] = [
        lambda: former.tell_again("VID-001"),
        former.forget,
        lambda: former.not_told(PLACE),
    ]
    for again in agains:
        again()
        assert former.untold(["VID-001"]) == {PLACE: {7: held(1)}}
        former.told(PLACE, {7: held(1)})
    former.tell_again("VID-002")
    assert former.untold(["VID-001"]) == {}
    assert former.untold(["VID-002"]) == {}


def test_a_device_in_its_first_epoch_is_told_nothing() -> None:
    hub = Hub(1, 2)
    assert FormerEpochs(hub.continuity).untold(["VID-001"]) == {}


def test_a_device_whose_only_epoch_is_over_is_told_of_it() -> None:
    hub = Hub(1, 2)
    hub.continuity.end(KEY.device, KEY.epoch)
    assert FormerEpochs(hub.continuity).untold(["VID-001"]) == {PLACE: {7: held(2)}}


def test_of_many_the_newest_are_told() -> None:
    hub = Hub()
    for number in range(EPOCHS_MAX + 5):
        hub.continuity.arrived(LaneKey("VID-001", "bulk", 100 + number), 1, 10, 1 + number)
    [held] = FormerEpochs(hub.continuity).untold(["VID-001"]).values()
    assert sorted(held) == [100 + number for number in range(4, EPOCHS_MAX + 4)]


def test_of_a_lane_whose_epochs_are_all_over_each_is_told() -> None:
    hub = Hub(1)
    hub.continuity.end(KEY.device, KEY.epoch)
    assert FormerEpochs(hub.continuity).untold(["VID-001"]) in ({}, {PLACE: {7: held(1)}})


@pytest.mark.parametrize(
    "again", [WatermarkNotifier.forget, lambda notifier: notifier.tell_again("VID-001")]
)
async def test_they_are_written_to_down_once_all_is_read_and_again_where_that_is_needed(
    again: Callable[[WatermarkNotifier], None],
) -> None:
    hub, told, troubles = two_epochs(), list[tuple[str, object]](), [True, False]

    class Down(OneByOne):
        def hear(self, subject: str, body: bytes) -> None:
            if "s.held" in subject:
                if troubles.pop(0):
                    raise HubError("not now")
                troubles.append(False)
                told.append((subject, json.loads(body)))

    hub.settled = False
    hub.notifier._api = Down()
    telling = asyncio.create_task(hub.notifier.tell_watermarks(0.0))
    try:
        await until(lambda: LATER in hub.notifier._told)
        for _ in range(10):
            await asyncio.sleep(0)
        assert told == []
        hub.settled = True
        await until(lambda: len(told) == 1)
        again(hub.notifier)
        await until(lambda: len(told) == 2)
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
    assert told == [("in.VID-001.s.held.bulk", {"epochs": {"7": [3, "", 1]}})] * 2

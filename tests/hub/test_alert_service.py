"""Alerts over restarts, with a real hub.db: each notice once where its answer was recorded, and none lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_hub.errors import HubError, RegistryError
from backhaul_hub.questions import Acknowledge, AlertsQuestion, Notify, SilenceQuestion
from tests.support.alerting import HOT, T0, S, cleared, condition, raised
from tests.support.waiting import until

from .alert_hub import ROUTE, AlertHub, hear

if TYPE_CHECKING:
    from backhaul_hub.alerts.outbox import NoticeMessage


@pytest.fixture
def hub(tmp_path: Path) -> AlertHub:
    return AlertHub(tmp_path / "hub.db")


async def test_an_alert_is_told_once_however_often_the_control_plane_starts(hub: AlertHub) -> None:
    async with hub.up() as service:
        await hear(service, hub, raised())
        await until(lambda: not service.delivery.queues["a"].waiting)
    for _ in range(3):
        async with hub.up() as service:
            await hear(service, hub, raised())
            await asyncio.sleep(0)
    async with hub.up() as service:
        await hear(service, hub, cleared(at_s=5))
        await until(lambda: not service.delivery.queues["a"].waiting)
    assert hub.wire.told() == ["a raised VID-001", "a over VID-001"]


async def test_a_notice_that_was_not_sent_goes_after_a_restart(hub: AlertHub) -> None:
    async with hub.up(deliver=False) as service:
        await hear(service, hub, raised())
    assert hub.wire.told() == []
    async with hub.up():
        await until(lambda: hub.wire.told() == ["a raised VID-001"])


async def test_a_message_whose_answer_was_not_recorded_goes_again_under_its_name(
    hub: AlertHub,
) -> None:
    async with hub.up() as service:
        # The control plane dies once the receiver has it, before hub.db does.
        died = asyncio.Event()

        async def die(message: NoticeMessage) -> None:
            died.set()
            await asyncio.Event().wait()

        service.delivery._record = die  # type: ignore[method-assign]
        await hear(service, hub, raised())
        await died.wait()
    async with hub.up(deliver=False) as service:
        other = raised(HOT._replace(device="VID-002"))
        await hear(service, hub, other)
    async with hub.up() as service:
        await until(lambda: len(service.delivery.queues["a"]) == 1)
        hub.time.s = 5.0
        service.delivery._wake["a"].set()
        await until(lambda: len(hub.wire.taken) == 3)
    first, again, second = hub.wire.taken
    assert first == again, "what came meanwhile is not in it: a receiver knows it by its name"
    assert [each.alert.key.device for each in second.notices] == ["VID-002"]


async def test_a_channel_that_fails_loses_nothing_and_says_why(hub: AlertHub) -> None:
    hub.wire.error = "it answers 503"
    async with hub.up() as service:
        await hear(service, hub, raised())
        await until(lambda: bool(service.delivery.failing()))
        assert service.delivery.failing() == {"a": "it answers 503 (mend it); 1 notices wait"}
        await hear(service, hub, cleared(at_s=5))
        assert len(service.delivery.queues["a"]) == 2
        assert (await service.listed(AlertsQuestion()))["channels"]["a"]["waiting"] == 2
        hub.wire.error = ""
        assert await service.retry(Notify("a")) == {"channel": "a", "waiting": 2}
        await until(lambda: len(service.delivery.queues["a"]) == 1)
        hub.time.s = 5.0
        service.delivery._wake["a"].set()
        await until(lambda: not service.delivery.queues["a"].waiting)
        assert service.delivery.failing() == {}
        with pytest.raises(HubError, match=r"no channel 'c'.*it knows a, b"):
            await service.retry(Notify("c"))
    assert hub.wire.told() == ["a raised VID-001", "a over VID-001"]


async def test_an_error_of_a_library_ends_nothing(hub: AlertHub) -> None:
    hub.wire.odd = ValueError("odd")
    async with hub.up() as service:
        await hear(service, hub, raised())
        await until(lambda: bool(service.delivery.failing()))
        assert "ValueError, see the log" in service.delivery.failing()["a"]
        hub.wire.odd = None
        await service.retry(Notify("a"))
        await until(lambda: len(hub.wire.taken) == 1)


async def test_a_message_that_some_are_refused_has_left_and_is_named(hub: AlertHub) -> None:
    hub.wire.refused = "refused boss@example.org"
    async with hub.up() as service:
        await hear(service, hub, raised())
        await until(lambda: service.delivery.failing() == {"a": "refused boss@example.org"})
    hub.wire.refused = ""
    async with hub.up():
        assert len(hub.wire.taken) == 1


async def test_what_hub_db_did_not_take_goes_with_the_next_commit(hub: AlertHub) -> None:
    async with hub.up() as service:
        write = service._registry.write
        failing = True

        async def refusing(changes: Any) -> None:
            if failing:
                raise RegistryError("the disk is full")
            await write(changes)

        service._registry.write = refusing  # type: ignore[method-assign]
        with pytest.raises(RegistryError):
            await hear(service, hub, raised())
        assert hub.live == []
        assert hub.wire.taken == []
        failing = False
        await service.look()
        await until(lambda: hub.wire.told() == ["a raised VID-001"])
        assert len(hub.live) == 1


async def test_conditions_are_alerts_over_a_restart(hub: AlertHub) -> None:
    hub.shown = [condition()]
    async with hub.up() as service:
        await service.look()
        await until(lambda: hub.wire.told() == ["a raised VID-001"])
    hub.shown = []
    async with hub.up() as service:
        await service.look()
        assert len(service.book.open) == 1, "it has time to be found again"
        hub.time.s += 31
        await service.look()
        assert not service.book.open
        await until(lambda: hub.wire.told()[1:] == ["a over VID-001"])


async def test_an_acknowledgement_is_kept_with_who_and_when(hub: AlertHub) -> None:
    async with hub.up() as service:
        await hear(service, hub, raised())
        [id_] = service.book.open
        said = await service.acknowledge(Acknowledge(id_, "on my way", "anna"))
        assert said["acknowledged"] == {"by": "anna", "time_ns": T0, "note": "on my way"}
        assert hub.live == [id_, id_], "others see it at once"
    async with hub.up() as service:
        await hear(service, hub, cleared(at_s=9))
        assert (await service.listed(AlertsQuestion()))["alerts"] == []
        [past] = (await service.listed(AlertsQuestion(past=True)))["alerts"]
    assert (past["state"], past["acknowledged"]["by"], past["ended_ns"]) == (
        "past",
        "anna",
        T0 + 9 * S,
    )


async def test_a_silence_is_kept(hub: AlertHub) -> None:
    async with hub.up() as service:
        said = await service.silence(
            SilenceQuestion("plant-7", 60.0, "too-*", "repair", who="anna")
        )
        assert (said["id"], said["holds"], said["who"]) == (1, True, "anna")
        with pytest.raises(HubError, match="a group or device and a time"):
            await service.silence(SilenceQuestion("plant-7"))
        with pytest.raises(HubError, match="no group or device plant-8"):
            await service.silence(SilenceQuestion("plant-8", 60.0))
    async with hub.up() as service:
        await hear(service, hub, raised())
        [alert] = (await service.listed(AlertsQuestion()))["alerts"]
        assert alert["silent_until_ns"] == T0 + 60 * S
        assert service.place_of(1) == "plant-7"
        assert hub.wire.taken == []
        await service.silence(SilenceQuestion(end=1, who="ben"))
        await until(lambda: hub.wire.told() == ["a raised VID-001"])
        assert (await service.listed(AlertsQuestion()))["silences"] == []


async def test_a_listing_has_the_newest_first_in_pages(hub: AlertHub) -> None:
    async with hub.up(deliver=False) as service:
        devices = [HOT._replace(device=f"VID-{number:03}") for number in range(5)]
        await hear(service, hub, *(raised(each, at_s=at) for at, each in enumerate(devices)))
        first = await service.listed(AlertsQuestion(limit=3))
        assert [each["device"] for each in first["alerts"]] == ["VID-004", "VID-003", "VID-002"]
        rest = await service.listed(AlertsQuestion(limit=3, before_ns=first["next_before_ns"]))
        assert [each["device"] for each in rest["alerts"]] == ["VID-001", "VID-000"]
        assert rest["next_before_ns"] is None
        of_one = await service.listed(AlertsQuestion(device="VID-003"))
        [one] = of_one["alerts"]
        found = await service.listed(AlertsQuestion(id=one["id"]))
        assert [each["channel"] for each in found["notices"]] == ["a"]
        some = await service.listed(AlertsQuestion(), ["VID-001"], lambda place: False)
        assert [each["device"] for each in some["alerts"]] == ["VID-001"]
        assert "channels" not in some


async def test_what_is_old_is_forgotten_and_what_is_open_is_not(hub: AlertHub) -> None:
    async with hub.up() as service:
        await hear(service, hub, raised(), cleared(at_s=5), raised(HOT._replace(device="VID-002")))
    hub.time.s = 91 * 86_400.0
    async with hub.up() as service:
        await service.look()
        known = (await service.listed(AlertsQuestion(past=True)))["alerts"]
    assert [each["device"] for each in known] == ["VID-002"]


async def test_a_channel_that_is_gone_keeps_its_notices_for_when_it_comes_back(
    hub: AlertHub,
) -> None:
    async with hub.up(deliver=False) as service:
        await hear(service, hub, raised())
    hub.routes = [{"channels": ["b"], "hold_s": 0.0}]
    async with hub.up():
        await until(lambda: hub.wire.told() == [])
    hub.routes = [ROUTE]
    async with hub.up():
        await until(lambda: hub.wire.told() == ["a raised VID-001"])

"""People see, acknowledge and silence alerts of their part of the tree alone."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest

from backhaul_hub.alerts.alert import AlertKey
from backhaul_hub.errors import HubError
from backhaul_hub.people.identity import May, Person
from backhaul_hub.people.scope import Scope
from backhaul_hub.people.services import PeopleServices
from backhaul_hub.questions import Acknowledge, AlertsQuestion, SilenceQuestion
from tests.support.alerting import HOT, raised
from tests.support.tree_hub import TreeHub

from .alert_hub import AlertHub, hear

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

DEVICES = ("VID-001", "VID-002")
OWN = AlertKey("health", "", "stream-full", "UP_00")


class Office:
    """plant-7 stands above VID-001, depot above VID-002; one alert of each, and one of the hub itself."""

    def __init__(self, tree: TreeHub, services: PeopleServices, ids: dict[str, str]) -> None:
        self._tree, self.services, self.ids = tree, services, ids

    def of(self, group: str) -> Scope:
        person = Person("anna", group, May.WRITE)
        return Scope(person, self._tree.tree, lambda: self._tree.hub.devices)


@pytest.fixture
def tree() -> Iterator[TreeHub]:
    made = TreeHub(DEVICES)
    for group, device in zip(("plant-7", "depot"), DEVICES, strict=True):
        made.do(made.writes.create(group, under="fleet"))
        made.do(made.writes.move(device, group))
    yield made
    made.hub.db.close()


@asynccontextmanager
async def office(tree: TreeHub, tmp_path: Path) -> AsyncIterator[Office]:
    hub = AlertHub(tmp_path / "hub.db")
    async with hub.up(deliver=False) as service:
        await hear(service, hub, raised(), raised(HOT._replace(device="VID-002")), raised(OWN))
        ids = {each.key.device: each.id for each in service.book.open.values()}
        nothing: Any = None
        services = PeopleServices(
            *(nothing, nothing, nothing, hub.time, "prod", tree.hub.core, nothing),
            *(cast("Any", lambda: tree.hub.devices), service, nothing, nothing),
        )
        yield Office(tree, services, ids)


async def test_one_sees_the_alerts_below_the_group_and_the_hubs_own_with_the_whole_fleet(
    tree: TreeHub, tmp_path: Path
) -> None:
    async with office(tree, tmp_path) as some:

        async def seen(group: str, **asked: Any) -> set[str]:
            answer = await some.services.alerts(some.of(group), AlertsQuestion(**asked))
            assert "channels" not in answer
            return {each["device"] for each in answer["alerts"]}

        assert await seen("plant-7") == {"VID-001"}
        assert await seen("fleet") == {"VID-001", "VID-002", ""}
        assert await seen("plant-7", id=some.ids["VID-002"]) == set()
        with pytest.raises(HubError, match="below plant-7 only"):
            await seen("plant-7", device="VID-002")


@pytest.mark.parametrize("device", ["VID-002", ""])
async def test_nobody_acknowledges_an_alert_of_others(
    tree: TreeHub, tmp_path: Path, device: str
) -> None:
    async with office(tree, tmp_path) as some:
        asked = Acknowledge(some.ids[device])
        with pytest.raises(HubError, match=f"no alert {asked.id} is open"):
            await some.services.acknowledge(some.of("plant-7"), asked)
        said = await some.services.acknowledge(some.of("fleet"), asked)
        assert said["acknowledged"]["by"] == "anna"


async def test_nobody_acknowledges_in_anothers_name(tree: TreeHub, tmp_path: Path) -> None:
    async with office(tree, tmp_path) as some:
        with pytest.raises(HubError, match="who writes is anna, not 'ben'"):
            await some.services.acknowledge(
                some.of("plant-7"), Acknowledge(some.ids["VID-001"], who="ben")
            )
        with pytest.raises(HubError, match="who writes is anna, not 'ben'"):
            await some.services.silence(
                some.of("plant-7"), SilenceQuestion("VID-001", 9.0, who="ben")
            )


async def test_nobody_begins_or_ends_a_silence_of_others(tree: TreeHub, tmp_path: Path) -> None:
    async with office(tree, tmp_path) as some:
        for place in ("depot", "VID-002", "fleet"):
            with pytest.raises(HubError, match="below plant-7 only"):
                await some.services.silence(some.of("plant-7"), SilenceQuestion(place, 60.0))
        theirs = await some.services.silence(some.of("depot"), SilenceQuestion("VID-002", 60.0))
        listed = await some.services.alerts(some.of("plant-7"), AlertsQuestion())
        assert listed["silences"] == []
        with pytest.raises(HubError, match="no silence 1 holds"):
            await some.services.silence(some.of("plant-7"), SilenceQuestion(end=theirs["id"]))
        ended = await some.services.silence(some.of("depot"), SilenceQuestion(end=theirs["id"]))
        assert not ended["holds"]

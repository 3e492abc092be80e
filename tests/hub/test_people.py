"""People: what their subjects say, and what of the tree they see, however it changes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_codec.state.merge import Head, HeadKey
from backhaul_codec.state.tree_text import describe, render
from backhaul_hub.continuity.future_stamps import FutureRule
from backhaul_hub.control.endpoints import Services, endpoints
from backhaul_hub.db.store import Registry
from backhaul_hub.device import FLEET
from backhaul_hub.errors import HubError, RightsError, WriteRefusedError
from backhaul_hub.people.identity import May, Person, person_of, require_person_name
from backhaul_hub.people.scope import Scope, Subtree
from backhaul_hub.people.services import PeopleServices
from backhaul_hub.sync.conflicts import Side
from backhaul_hub.sync.newest_readings import Readings
from backhaul_hub.sync.service import SyncService
from backhaul_hub.sync.writes import Put
from tests.support.tree_hub import TreeHub

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


DEVICES = ("VID-001", "VID-002", "VID-003")
ANNA = Person("anna", "plant-7", May.WRITE)
OTHERS = (
    *("acknowledge", "alerts", "commands", "devices", "hand_over", "history", "notify"),
    *("one_machine", "silence", "status", "stop"),
)


class Fleet(TreeHub):
    """Groups above three devices: plant-7 > hall-1 > VID-001; depot > VID-002; VID-003 hangs free."""

    def __init__(self) -> None:
        super().__init__(DEVICES)
        for group, under in (("plant-7", FLEET), ("hall-1", "plant-7"), ("depot", FLEET)):
            self.do(self.writes.create(group, under=under))
        self.do(self.writes.move("VID-001", "hall-1"))
        self.do(self.writes.move("VID-002", "depot"))
        self.heard()

    def scope(self, group: str = "plant-7", may: May = May.READ) -> Scope:
        return Scope(Person("anna", group, may), self.tree, lambda: self.hub.devices)

    def heard(self) -> list[tuple[str, set[str]]]:
        """Return what was announced since the last call: the series, and who heard of it."""
        found = [
            (".".join(each.change.key), set(each.tokens)) for each in self.hub.core.announcements
        ]
        self.hub.core.announcements.clear()
        return found


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    some = Fleet()
    yield some
    some.hub.db.close()


def test_the_subjects_say_who_asks_what() -> None:
    assert ANNA.ask("get") == "ask.write.plant-7.anna.get"
    assert (ANNA.questions, ANNA.live) == ("ask.write.plant-7.anna.>", "up.plant-7.>")
    assert person_of(ANNA.ask("get")) == (ANNA, "get")


@given(st.text(min_size=1, max_size=20), st.sampled_from(May))
def test_any_group_is_one_token(group: str, may: May) -> None:
    person = Person("anna", group, may)
    assert person_of(person.ask("tree")) == (person, "tree")
    assert person.live.count(".") == 2


@pytest.mark.parametrize(
    "subject",
    [
        "ask.own.plant-7.anna.get",
        "ask.read.plant%37.anna.get",
        "ask.read.plant-7.anna.get.all",
        "ask.read.plant-7.anna",
        "ask.read.plant-7.an*na.get",
        "hub.get",
        "",
    ],
)
def test_any_other_subject_is_nobodys_question(subject: str) -> None:
    with pytest.raises(RightsError):
        person_of(subject)


@pytest.mark.parametrize("name", ["", "an na", "an.na", "*", ">", "a" * 64, "shadow", "-a"])
def test_a_name_that_would_be_taken_for_something_else_is_refused(name: str) -> None:
    with pytest.raises(RightsError):
        require_person_name(name)


def test_each_right_includes_those_before_it() -> None:
    assert [[has.covers(needed) for needed in May] for has in May] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]


def test_a_group_is_seen_with_all_below_it_and_nothing_else(fleet: Fleet) -> None:
    scope = fleet.scope()
    seen = {"plant-7", "hall-1", "VID-001", "VID-001/battery"}
    others = {FLEET, "depot", "VID-002", "VID-002/battery", "VID-003", "VID-404", "", "hall-2"}
    assert [each for each in sorted(seen | others) if scope.sees(each)] == sorted(seen)
    assert scope.devices == ["VID-001"]
    assert fleet.scope("VID-002").devices == ["VID-002"]
    assert fleet.scope(FLEET).devices == list(DEVICES)
    assert not fleet.scope("nobody-made-it").devices


def test_what_is_added_or_leaves_later_is_seen_or_not_at_once(fleet: Fleet) -> None:
    scope = fleet.scope()
    fleet.do(fleet.writes.mirror("VID-003", "hall-1"))
    fleet.hub.devices["VID-004"] = None
    fleet.tree.forget()
    fleet.do(fleet.writes.move("VID-004", "plant-7"))
    assert scope.devices == ["VID-001", "VID-003", "VID-004"]
    fleet.do(fleet.writes.move("hall-1", "depot"))
    assert scope.devices == ["VID-004"]
    del fleet.hub.devices["VID-004"]
    fleet.tree.forget()
    assert scope.devices == []


def test_a_device_below_several_groups_is_seen_from_each(fleet: Fleet) -> None:
    fleet.do(fleet.writes.mirror("VID-001", "depot"))
    assert fleet.scope("depot").devices == ["VID-001", "VID-002"]
    assert fleet.scope("plant-7").devices == ["VID-001"]


def test_of_a_group_that_was_deleted_nothing_is_seen_nor_heard(fleet: Fleet) -> None:
    fleet.do(fleet.writes.delete("plant-7"))
    for group in ("plant-7", "hall-1"):
        scope = fleet.scope(group)
        assert not scope.sees(group)
        assert scope.devices == []
        with pytest.raises(RightsError, match=f"{group} is not in the tree"):
            scope.require_group()
    fleet.heard()
    fleet.hub.set(Put(HeadKey("", "battery", "limit"), 1.0))
    assert fleet.heard() == [(".battery.limit.", {"VID-001%2Fbattery", "VID-001", FLEET})]
    fleet.do(fleet.writes.undelete("plant-7"))
    assert fleet.scope().devices == ["VID-001"]


def test_refusals_say_what_is_missing(fleet: Fleet) -> None:
    scope = fleet.scope()
    with pytest.raises(RightsError, match=r"anna may read below plant-7 only .*VID-002"):
        scope.require("VID-002")
    with pytest.raises(RightsError, match=r"anna may read below plant-7 only .*VID-404"):
        scope.require("VID-404")  # whether it exists is not said
    with pytest.raises(RightsError, match="this takes the right to command"):
        scope.require_may(May.COMMAND)
    with pytest.raises(HubError, match="there is no device VID-404"):
        fleet.scope(FLEET).require_device("VID-404")


def test_the_subtree_names_nothing_beside_it(fleet: Fleet) -> None:
    fleet.do(fleet.writes.mirror("VID-001", "depot"))
    fleet.do(fleet.writes.delete("VID-002"))
    subtree = Subtree(fleet.scope())
    said = describe(subtree)  # type: ignore[arg-type]
    assert said["root"] == "plant-7"
    assert {each["node"]: each["parents"] for each in said["nodes"]} == {
        "plant-7": [],
        "hall-1": ["plant-7"],
        "VID-001": ["hall-1"],
    }
    text = "\n".join(render(subtree))  # type: ignore[arg-type]
    assert "hall-1" in text
    assert not any(name in text + str(said) for name in ("depot", FLEET, "VID-002", "VID-003"))


def test_who_is_below_does_not_hear_where_else_a_device_goes(fleet: Fleet) -> None:
    fleet.do(fleet.writes.move("VID-001", "depot"))
    heard = {series: who for series, who in fleet.heard() if "nodeType" in series}
    assert heard == {
        "depot.VID-001.nodeType.": {"depot", FLEET},
        "hall-1.VID-001.nodeType.": {"hall-1", "plant-7", FLEET},
    }
    fleet.hub.set(Put(HeadKey("", "battery", "limit"), 1.0))
    ((_, who),) = fleet.heard()
    assert who == {"VID-001%2Fbattery", "VID-001", "depot", FLEET}


async def nobody(_: object) -> None:
    pytest.fail("no person asks this")


async def test_conflicts_are_listed_and_settled_below_the_group_alone(
    fleet: Fleet, tmp_path: Path
) -> None:
    core = fleet.hub.core
    winner, loser = (Side(Head(time, "hub:x", 1.0), "synced") for time in (2, 1))
    mine, theirs = (
        core.conflicts.note(
            device, HeadKey("", "gps", "rate"), winner=winner, loser=loser, noticed_ns=3
        ).id
        for device in ("VID-001", "VID-002")
    )
    readings = Readings(fleet.clock, FutureRule(5.0), listening=False)
    async with await Registry.open(tmp_path / "hub.db") as registry:
        sync = SyncService(core, readings, registry, fleet.clock, lambda: fleet.hub.devices)
        nothing: Any = None
        people = PeopleServices(
            *(nothing, nothing, registry, fleet.clock, "prod", core, sync),
            *(cast("Any", lambda: fleet.hub.devices), nothing, nothing, nothing),
        )
        table = endpoints(
            sync, people, cast("Any", MagicMock()), (), **dict.fromkeys(OTHERS, nobody)
        )
        services = Services(table, people.scope)

        async def ask(service: str, **question: object) -> dict[str, Any]:
            said: dict[str, Any] = await services.answer(
                ANNA, service, json.dumps(question).encode()
            )
            return said

        listed = await ask("conflicts")
        assert [each["id"] for each in listed.pop("conflicts")] == [mine]
        assert listed == {}, "how many were forgotten is known of all devices together alone"
        for id_ in (theirs, 99):
            for accept in (True, False):
                with pytest.raises(WriteRefusedError, match=f"there is no conflict {id_}"):
                    await ask("revert", id=id_, accept=accept)
        with pytest.raises(RightsError, match="VID-002 is not below it"):
            await ask("conflicts", device="VID-002")
        settled = await ask("revert", id=mine, accept=True)
        assert settled["conflict"]["resolved_by"] == "hub:anna"
    assert [each.device for each in core.conflicts.of() if not each.resolved_ns] == ["VID-002"]

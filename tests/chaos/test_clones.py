"""What two machines with one cloned disk excuse, and what they do not; and a short run of fixed faults."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.commit.framer import pack
from backhaul_agent.ledger.rows import LedgerChanges, Staged
from backhaul_agent.presence.machine import identify
from backhaul_codec.protocol.words import spare_of
from tests.agent.ledgers import open_ledger
from tests.chaos.checker import check
from tests.chaos.clone import Clone
from tests.chaos.damage import Damage
from tests.chaos.diary import Entry, Reading
from tests.chaos.evidence import Found, LaneName, Place, Uplinks
from tests.chaos.faults_clone import look_at_image, ready
from tests.chaos.look import two_machines
from tests.chaos.losses import put_back
from tests.chaos.machine import Machine
from tests.chaos.planted import (
    EVENTS,
    HOURS,
    LOST,
    ONE,
    ORDER,
    TWICE,
    changed,
    clone,
    event_lost,
    twice,
)
from tests.chaos.planted_words import event_before_the_one_before
from tests.chaos.rows import frame as row
from tests.chaos.rows import reading
from tests.chaos.sound_run import BULK, EPOCH, HOUR, LIVE, VID, Case, frame, readings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def twice_and_never_open_on_the_disk(case: Case) -> None:
    twice(case)
    case.found.clones = [clone(2, 1, 2, 4)]


def changed_before_the_end_of_the_disk(case: Case) -> None:
    changed(case)
    case.found.clones = [clone(3)]


def changed_on_a_machine_that_was_never_cloned(case: Case) -> None:
    changed(case)
    case.found.clones = [Clone("VID-002", Damage("VID-002", 0, 0), {BULK: 0}, HOUR, HOUR + 1)]


def changed_in_an_epoch_that_was_not_on_the_disk(case: Case) -> None:
    changed(case)
    case.found.clones = [Clone(VID, Damage(VID, 0, 0), {LIVE: 0}, HOUR, HOUR + 1)]


def changed_though_the_second_machine_never_came(case: Case) -> None:
    changed(case)
    case.found.clones = [Clone(VID, Damage(VID, 0, 0), {BULK: 2})]


def order_broken_on_one_machine(case: Case) -> None:
    event_before_the_one_before(case)
    case.found.clones = [clone()]


def gone(case: Case, *numbers: int) -> None:
    """Have readings 20 and 21 be nowhere, and some be gone with the second machine of a clone."""
    case.told.entries.append(readings(20, 2))
    damage = put_back(*numbers)
    damage.clone = Clone(VID, Damage(VID, 0, 0), {BULK: 2}, HOUR + 15, HOUR + 30)
    case.found.damages, case.found.clones = [damage], [damage.clone]


def gone_with_the_first_machine(case: Case) -> None:
    gone(case, 20)
    case.found.complete_hours = {}


def gone_from_a_complete_hour_though_the_hub_heard_the_second(case: Case) -> None:
    gone(case, 20, 21)
    case.told.entries.append(readings(22, 1))
    case.bulk(frame(4, 22))
    case.table()
    case.say(BULK)


def event_gone_with_the_first_machine(case: Case) -> None:
    event_lost(case)
    case.found.clones = [clone()]


PLANTED: list[tuple[Callable[[Case], None], set[str]]] = [
    (twice_and_never_open_on_the_disk, {TWICE}),
    (changed_before_the_end_of_the_disk, {ONE}),
    (changed_on_a_machine_that_was_never_cloned, {ONE}),
    (changed_in_an_epoch_that_was_not_on_the_disk, {ONE}),
    (changed_though_the_second_machine_never_came, {ONE}),
    (order_broken_on_one_machine, {ORDER}),
    (gone_with_the_first_machine, {LOST}),
    (gone_from_a_complete_hour_though_the_hub_heard_the_second, {HOURS}),
    (event_gone_with_the_first_machine, {EVENTS}),
]


@pytest.mark.parametrize(("plant", "rules"), PLANTED, ids=[plant.__name__ for plant, _ in PLANTED])
def test_what_no_clone_excuses_is_seen(plant: Callable[[Case], None], rules: set[str]) -> None:
    case = Case()
    plant(case)
    assert set(case.broken()) == rules


def test_each_machine_sends_what_was_open_on_the_disk_and_messages_of_its_own() -> None:
    case = Case()
    twice(case)
    changed(case)
    case.table()
    case.found.clones = [clone(2, 3)]
    case.found.told_two = {VID}
    assert check(case.told, case.found) == []


def test_events_of_two_machines_have_any_order() -> None:
    case = Case()
    event_before_the_one_before(case)
    case.told.entries[-1].answered_ns = HOUR + 10
    case.found.clones = [clone()]
    assert check(case.told, case.found) == []


def test_what_the_second_machine_never_told_may_be_gone_and_nobody_know() -> None:
    case = Case()
    gone(case, 20, 21)
    assert check(case.told, case.found) == []


def test_a_spare_epoch_of_what_was_on_the_disk_may_have_two_messages_in_one_place() -> None:
    made = clone(2)
    spare = BULK._replace(epoch=spare_of(spare_of(EPOCH)))
    assert made.may_differ(Place(spare, 1))
    assert not made.may_differ(Place(spare._replace(lane="live"), 1))
    assert not made.may_differ(Place(spare._replace(device="VID-002"), 1))


def test_what_was_moved_into_a_spare_epoch_stood_in_one_place_with_another() -> None:
    found = Found(clones=[clone(2)])
    assert found.forked() == set()
    found.up.bodies[Place(BULK._replace(epoch=spare_of(EPOCH)), 3)] = b""
    assert found.forked() == {VID}


def test_the_second_machine_answers_from_when_it_is_in_until_the_first_is_back() -> None:
    made = clone()
    entries = [
        Entry("event", device, HOUR, {}, "kept", HOUR + at)
        for device, at in ((VID, 9), (VID, 10), (VID, 19), (VID, 20), ("VID-002", 15))
    ]
    assert [made.of_second(each) for each in entries] == [False, True, True, False, False]


async def test_open_on_a_disk_is_what_is_in_no_message_or_waits_for_its_time(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.db"
    ledger = await open_ledger(path)
    for number in (1, 2):
        await ledger.commit(LedgerChanges([row(number)]))
    await ledger.commit(LedgerChanges(staged=[Staged("imu", 1, pack([reading(4)]))]))
    found, waits = Clone(VID, Damage(VID, 0, 0)), Clone(VID, Damage(VID, 0, 0))
    assert look_at_image(path, found)
    assert found.ends[LaneName(VID, "bulk", 42)] == 2
    assert found.open.readings == {Reading(VID, "imu", 4, 4.0)}
    await ledger.close()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE messages SET boot = 1 WHERE seq = 2")
    assert look_at_image(path, waits)
    assert waits.ends[LaneName(VID, "bulk", 42)] == 1
    assert waits.open.readings == {Reading(VID, "imu", number, float(number)) for number in (2, 4)}
    path.write_bytes(b"garbage" * 1000)
    assert not look_at_image(path, Clone(VID, Damage(VID, 0, 0)))


def test_agents_are_on_the_machine_that_is_in_the_vehicle(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "root")

    def known() -> str:
        return identify(tmp_path / "ledger.db", "boot", lambda: 7, machine.root).machine

    first, first_id = known(), machine.id
    machine.put_in(machine.another())
    assert known() != first
    machine.put_in(first_id)
    assert known() == first


FIRST = {"machine": "a", "boot": "b", "run": "c"}
SECOND = FIRST | {"machine": "d"}


@pytest.mark.parametrize(
    ("seen", "told", "now"),
    [
        ([], {VID}, False),
        ([FIRST, SECOND], {VID}, False),
        ([SECOND, FIRST], {VID}, True),
        ([SECOND, FIRST], {"VID-002"}, False),
    ],
    ids=["nobody-heard", "second-heard-last", "first-heard-last", "not-told"],
)
def test_an_operator_speaks_once_the_first_machine_is_heard_and_the_fork_is_told(
    seen: list[dict[str, Any]], told: set[str], now: bool
) -> None:
    found = Found(up=Uplinks(changed=[Place(BULK, 3)]), clones=[clone()], told_two=told)
    found.machines = {VID: FIRST}
    found.report = {"devices": [{"device": VID, "agent": {"machines": seen}}]}
    assert ready(found, VID, patient=True) == now
    heard = seen[-1:] == [FIRST]
    assert ready(found, VID, patient=False) == heard
    found.up.changed = []
    assert ready(found, VID, patient=True) == heard
    found.restless = [f"{VID}: 1 former_epochs_owed"]
    assert not ready(found, VID, patient=True)
    assert ready(found, VID, patient=False) == heard


def test_the_hub_tells_of_two_machines_by_that_condition_alone() -> None:
    codes = {"VID-001": "machine-changed", "VID-002": "two-machines"}
    said = [{"code": code, "device": device} for device, code in codes.items()]
    assert two_machines({"conditions": said}) == {"VID-002"}

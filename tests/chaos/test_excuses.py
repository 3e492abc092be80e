"""What faults of stores excuse, and what they do not: an excuse that excuses too much would be seen here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backhaul_codec import Point, encode_point
from tests.chaos.checker import check
from tests.chaos.diary import Entry
from tests.chaos.evidence import EVENT, LaneName
from tests.chaos.losses import damage, gone_with_a_ledger, put_back
from tests.chaos.planted import (
    COMMAND,
    EVENTS,
    HOURS,
    LOST,
    OWED,
    WATERMARK,
    WRITES,
    event_lost,
    lost,
)
from tests.chaos.planted_words import write_undone
from tests.chaos.sound_run import (
    BULK,
    EPOCH,
    HOUR,
    SECOND_NS,
    VID,
    Case,
    frame,
    happening,
    readings,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def command_gone_before_a_rollback(case: Case) -> None:
    case.found.rolled_back = [(HOUR + 1, HOUR + 2)]
    del case.found.commands["c2"]


def command_gone_after_a_rollback(case: Case) -> None:
    case.found.rolled_back = [(HOUR - 2, HOUR - 1)]
    del case.found.commands["c2"]


def command_started_and_gone_in_a_rollback(case: Case) -> None:
    case.found.rolled_back = [(HOUR, HOUR + 1)]
    del case.found.commands["c1"]


def command_without_end_in_a_rollback(case: Case) -> None:
    case.found.rolled_back = [(HOUR, HOUR + 1)]
    case.found.commands["c2"]["state"] = "sent"


def more_repeats_than_a_rollback_explains(case: Case) -> None:
    case.found.rolled_back = [(HOUR, HOUR + 1)]
    case.say(BULK, repeats=4)


def gone_with_a_ledger_of_another(case: Case) -> None:
    gone_with_a_ledger(case)
    case.found.damages = [damage(3, 4, device="VID-002")]


def gone_though_the_hub_had_it(case: Case) -> None:
    gone_with_a_ledger(case)
    case.found.damages = [damage(3)]


def gone_and_the_epoch_goes_on(case: Case) -> None:
    lost(case)
    case.found.damages = [damage(3, 4)]


def gone_long_before_the_damage(case: Case) -> None:
    gone_with_a_ledger(case)
    case.found.damages = [damage(until=500)]


def gone_long_after_the_damage(case: Case) -> None:
    case.replace_ledger()
    case.found.complete_hours = {}
    case.found.damages = [damage(until=500)]
    case.told.entries.append(readings(600, 1))


def gone_from_a_complete_hour(case: Case) -> None:
    gone_with_a_ledger(case)
    case.found.complete_hours = {VID: [HOUR]}


def event_gone_before_the_damage(case: Case) -> None:
    event_lost(case)
    case.replace_ledger()
    case.found.damages = [damage(3)]


def write_undone_by_a_ledger_that_did_not_have_it(case: Case) -> None:
    write_undone(case)
    case.replace_ledger()
    case.found.damages = [damage(3)]


def write_of_the_hub_undone(case: Case) -> None:
    write = Entry("config", VID, HOUR + 120, {"node": "hub1", "value": 1.0}, "kept", HOUR + 121)
    case.told.entries.append(write)


def write_of_the_hub_undone_by_a_ledger(case: Case) -> None:
    write_of_the_hub_undone(case)
    case.replace_ledger()
    case.found.damages = [damage(until=500)]


def more_set_aside_than_named(case: Case) -> None:
    case.told.entries.append(readings(20, 3))
    case.found.complete_hours = {}
    case.found.damages = [damage()]
    case.found.up.set_aside[VID] = 2


def set_aside_by_no_damage(case: Case) -> None:
    case.told.entries.append(readings(20, 3))
    case.found.complete_hours = {}
    case.found.up.set_aside[VID] = 3


def command_gone_after_the_registry_was_rebuilt(case: Case) -> None:
    case.found.lost_registries = [(HOUR - 2, HOUR - 1)]
    del case.found.commands["c2"]


def command_started_twice_after_the_registry_was_rebuilt(case: Case) -> None:
    case.found.lost_registries = [(HOUR - 2, HOUR - 1)]
    case.found.starts["c1"] = 2


def write_of_the_hub_undone_after_the_registry_was_rebuilt(case: Case) -> None:
    write_of_the_hub_undone(case)
    case.found.lost_registries = [(HOUR, HOUR + 119)]


def write_of_a_vehicle_undone_with_the_registry(case: Case) -> None:
    write_undone(case)
    case.found.lost_registries = [(HOUR, HOUR + 1)]


def gone_though_it_waited_in_out(case: Case) -> None:
    gone_with_a_ledger(case)
    case.found.damages = [put_back(3, in_out=(4,))]
    case.found.store_losses = [("VID-002", HOUR + 200), (VID, HOUR + 99), (VID, HOUR + 10**12)]


def kept_after_the_copy_was_put_back(case: Case) -> None:
    case.told.entries.append(readings(600, 1))
    case.found.complete_hours = {}
    case.found.damages = [put_back()]


def started_three_times(case: Case) -> None:
    case.found.damages = [put_back()]
    case.found.starts["c1"] = 3


def started_twice_before_the_copy_was_made(case: Case) -> None:
    case.found.damages = [put_back()]
    case.found.damages[0].since_ns = HOUR + 7 * SECOND_NS
    case.found.starts["c1"] = 2


PLANTED: list[tuple[Callable[[Case], None], set[str]]] = [
    (command_gone_before_a_rollback, {COMMAND}),
    (command_gone_after_a_rollback, {COMMAND}),
    (command_started_and_gone_in_a_rollback, {COMMAND}),
    (command_without_end_in_a_rollback, {COMMAND}),
    (more_repeats_than_a_rollback_explains, {WATERMARK}),
    (gone_with_a_ledger_of_another, {LOST}),
    (gone_though_the_hub_had_it, {LOST}),
    (gone_and_the_epoch_goes_on, {LOST, OWED}),
    (gone_long_before_the_damage, {LOST}),
    (gone_long_after_the_damage, {LOST}),
    (gone_from_a_complete_hour, {HOURS}),
    (event_gone_before_the_damage, {EVENTS}),
    (write_undone_by_a_ledger_that_did_not_have_it, {WRITES}),
    (write_of_the_hub_undone_by_a_ledger, {WRITES}),
    (more_set_aside_than_named, {LOST}),
    (set_aside_by_no_damage, {LOST}),
    (gone_though_it_waited_in_out, {LOST}),
    (kept_after_the_copy_was_put_back, {LOST}),
    (started_three_times, {COMMAND}),
    (started_twice_before_the_copy_was_made, {COMMAND}),
    (command_gone_after_the_registry_was_rebuilt, {COMMAND}),
    (command_started_twice_after_the_registry_was_rebuilt, {COMMAND}),
    (write_of_the_hub_undone_after_the_registry_was_rebuilt, {WRITES}),
    (write_of_a_vehicle_undone_with_the_registry, {WRITES}),
]


@pytest.mark.parametrize(("plant", "rules"), PLANTED, ids=[plant.__name__ for plant, _ in PLANTED])
def test_what_no_fault_excuses_is_seen(plant: Callable[[Case], None], rules: set[str]) -> None:
    case = Case()
    plant(case)
    assert set(case.broken()) == rules


def test_what_a_rollback_of_the_hub_took_comes_again_or_was_a_command_that_nobody_had_heard_of() -> (
    None
):
    case = Case()
    case.found.rolled_back = [(HOUR, HOUR + 1)]
    del case.found.commands["c2"]
    case.say(BULK, repeats=3)
    assert check(case.told, case.found) == []


def test_what_a_damaged_ledger_had_alone_may_be_gone_with_it() -> None:
    case = Case()
    gone_with_a_ledger(case)
    case.told.entries.append(readings(120, 2))  # kept in the damaged file, which was then set aside
    case.found.damages[0].until_ns = HOUR + 500
    assert check(case.told, case.found) == []


def test_what_stood_in_a_lost_registry_alone_may_be_gone_with_it() -> None:
    case = Case()
    write_of_the_hub_undone(case)
    case.found.lost_registries = [(HOUR, HOUR + 1), (HOUR + 100, HOUR + 120)]
    del case.found.commands["c2"]
    case.found.commands["c1"]["state"] = "expired"
    assert check(case.told, case.found) == []


def test_what_an_older_copy_of_a_ledger_lacks_may_be_gone_and_nobody_know() -> None:
    """The epoch goes on, and the hour is reported: no word of it had left the vehicle."""
    case = Case()
    case.told.entries.append(readings(20, 2))
    case.found.damages = [put_back(20, 21)]
    case.found.starts["c1"] = 2
    assert check(case.told, case.found) == []


def test_each_older_copy_of_a_ledger_may_have_forgotten_one_start() -> None:
    case = Case()
    case.found.damages = [put_back(), put_back()]
    case.found.starts["c1"] = 3
    assert check(case.told, case.found) == []
    case.found.starts["c1"] = 4
    assert len(check(case.told, case.found)) == 1


def test_what_waited_in_out_may_be_gone_with_that() -> None:
    case = Case()
    gone_with_a_ledger(case)
    case.found.damages = [put_back(3, in_out=(4,))]
    case.found.store_losses = [(VID, HOUR + 200)]
    assert check(case.told, case.found) == []


def test_a_new_ledger_may_have_said_nothing_on_a_lane_yet() -> None:
    case = Case()
    case.told.entries.append(readings(20, 1))
    case.found.complete_hours = {}
    case.found.damages = [damage(20)]
    case.say(LaneName(VID, "live", EPOCH + 1), epoch=EPOCH + 1)
    assert check(case.told, case.found) == []


def test_events_and_writes_may_be_gone_with_a_damaged_ledger_too() -> None:
    case = Case()
    event_lost(case)
    write_undone(case)
    case.replace_ledger()
    only = damage()
    body = encode_point(Point("cfg", "number", HOUR, 2.0), epoch=EPOCH, seq=3)
    only.add_rows([(f"e.app.{EVENT}", happening(2, 2)), ("p.cfg.number.%", body)])
    case.found.damages = [only]
    assert check(case.told, case.found) == []


def test_what_was_set_aside_out_of_a_damaged_ledger_is_named_by_its_number() -> None:
    case = Case()
    case.told.entries.append(readings(20, 3))
    case.found.complete_hours = {}
    case.found.damages = [damage()]
    case.found.up.set_aside[VID] = 3
    assert check(case.told, case.found) == []


@pytest.mark.parametrize(
    ("damaged", "rolled_back"),
    [(True, False), (False, True), (True, True)],
    ids=["ledger", "store", "both"],
)
def test_a_receipt_may_be_gone_from_up_where_both_a_store_and_the_ledger_were_put_back(
    damaged: bool, rolled_back: bool
) -> None:
    case = Case()
    case.found.damages = [damage()] if damaged else []
    case.found.rolled_back = [(HOUR, HOUR + 1)] if rolled_back else []
    case.bulk(frame(5, 6))
    case.table()
    case.say(BULK, watermark=5, explained=[[4, 4]])
    assert case.broken() == ([] if damaged and rolled_back else [WATERMARK])

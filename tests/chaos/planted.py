"""Violations, each planted in a sound run, and the rules of the checker that must see it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from backhaul_codec import Opaque, Point, encode_point
from tests.chaos.clone import Clone
from tests.chaos.damage import Damage
from tests.chaos.diary import Entry
from tests.chaos.evidence import (
    LaneName,
    Place,
)
from tests.chaos.planted_words import (
    command_accepted_before_it_was_sent,
    command_cut_short_by_nothing,
    command_ended_in_the_future,
    command_expired_and_started,
    command_expired_too_early,
    command_given_up_for_no_reason,
    command_gone,
    command_nobody_sent,
    command_of_nobody,
    command_started_too_late,
    command_twice,
    command_without_answer_or_record,
    command_without_answer_twice,
    command_without_end,
    complete_before_it_is_over,
    event_before_the_one_before,
    event_of_another_time,
    event_of_nobody,
    head_gone,
    heads_differ,
    repeats_of_nothing,
    repeats_unseen,
    stamp_of_a_client,
    stamp_of_a_clock_that_says_it_is_unset,
    stamp_too_early,
    stamp_too_late,
    stamp_without_answer_from_the_future,
    word_of_the_future,
    word_of_the_past,
    write_of_nobody,
    write_refused,
    write_undone,
)
from tests.chaos.sound_run import (
    BULK,
    EPOCH,
    HOUR,
    LIVE,
    SECOND_NS,
    VID,
    Case,
    frame,
    happening,
    readings,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def lost(case: Case) -> None:
    case.forget(2)
    case.found.complete_hours = {}
    said = case.say(BULK)
    said |= {"watermark": 1, "gaps": [[2, 2]]}


def lost_and_unnoticed(case: Case) -> None:
    case.forget(2)
    case.say(BULK)


def twice(case: Case) -> None:
    case.bulk(frame(4, 3))
    case.say(BULK)
    case.table()


def event_twice(case: Case) -> None:
    case.event(happening(3, 2))
    case.say(LIVE)


def changed(case: Case) -> None:
    case.bulk(frame(3, 6))
    case.say(BULK, repeats=1)
    case.found.up.repeats[BULK] = 1


def garbage(case: Case) -> None:
    case.bulk(b"garbage")


def quarantined(case: Case) -> None:
    case.found.report["streams"][0]["quarantined"] = 1


def refused(case: Case) -> None:
    case.bulk(frame(4, 7))
    case.say(BULK)
    case.table()


def stranger(case: Case) -> None:
    case.bulk(frame(4, 99))
    case.say(BULK)
    case.table()


def event_lost(case: Case) -> None:
    del case.found.up.bodies[Place(LIVE, 2)]
    case.found.up.happenings.popitem()
    del case.found.up.event_copies[Place(LIVE, 2)], case.found.twin_events[Place(LIVE, 2)]
    case.say(LIVE)


def event_lost_beside_receipts(case: Case) -> None:
    event_lost(case)
    case.found.filled = {VID}
    receipt(case, 9, 9, "evicted: ledger full", lane=LIVE)
    case.say(LIVE)


def event_refused(case: Case) -> None:
    case.told.entries.append(Entry("event", VID, HOUR, {"event": 3}, "refused", HOUR))
    case.event(happening(3, 3))
    case.say(LIVE)


def event_not_in_the_twin(case: Case) -> None:
    del case.found.twin_events[Place(LIVE, 2)]


def event_doubled_in_the_twin(case: Case) -> None:
    case.found.twin_events[Place(LIVE, 2)] += 1


def receipt_of_the_other_lane(case: Case) -> None:
    case.found.filled = {VID}
    case.told.entries.append(readings(20, 1))
    case.found.complete_hours = {}
    receipt(case, 9, 9, "evicted: ledger full", lane=LIVE)
    case.say(LIVE, watermark=3)


def receipt_for_a_bad_row_of_a_sound_ledger(case: Case) -> None:
    case.told.entries.append(readings(20, 1))
    case.found.complete_hours = {}
    receipt(case, 4, 4, "corrupt: x")
    case.say(BULK, watermark=4)


def receipt_of_a_ledger_that_had_room(case: Case) -> None:
    case.told.entries.append(readings(20, 1))
    case.found.complete_hours = {}
    receipt(case, 4, 4, "forgotten: the hub had confirmed it")
    case.say(BULK, watermark=4)


def watermark_over_a_hole(case: Case) -> None:
    case.bulk(frame(6, 6))
    case.table()
    case.say(BULK)


def messages_miscounted(case: Case) -> None:
    case.say(BULK, messages=2)


def bytes_miscounted(case: Case) -> None:
    case.say(BULK, bytes=2)


def highest_seq_too_high(case: Case) -> None:
    case.say(BULK, highest_seq=4)


def gap_of_what_is_there(case: Case) -> None:
    case.say(BULK, gaps=[[2, 2]])


def receipt_of_nobody(case: Case) -> None:
    case.say(BULK, explained=[[2, 2]])


def gap_at_rest(case: Case) -> None:
    case.bulk(frame(5, 6))
    case.table()
    case.say(BULK, watermark=3, gaps=[[4, 4]])


def former_epoch_owes(case: Case) -> None:
    case.found.report["devices"][0]["former"] = [{"lane": "bulk", "epoch": 4, "owed": [[9, 9]]}]


def restless(case: Case) -> None:
    case.found.restless = [f"{VID}: 3 points are in no frame"]


def complete_over_a_hole(case: Case) -> None:
    case.told.entries.append(readings(20, 1))


def history_lacks(case: Case) -> None:
    assert case.found.history
    case.found.history.popitem()


def history_doubles(case: Case) -> None:
    assert case.found.history
    case.found.history[next(iter(case.found.history))] += 1


def history_invents(case: Case) -> None:
    assert case.found.history
    reading = next(iter(case.found.history))
    case.found.history[reading._replace(value=-1.0)] = 1


def expanding_lost(case: Case) -> None:
    case.found.expanding[VID] += 1


def expanding_not_in_the_table(case: Case) -> None:
    case.found.history_expanding[VID] -= 1


def expanding_doubled_in_the_table(case: Case) -> None:
    case.found.history_expanding[VID] *= 2


def receipt(case: Case, low: int, high: int, reason: str, *, lane: LaneName = BULK) -> None:
    """Have a vehicle say that some seqs will never come, and the hub hear it."""
    words = {"lane": lane.lane, "epoch": lane.epoch, "lo": low, "hi": high, "reason": reason}
    body = Opaque(6, json.dumps(words).encode())
    seq = max(case.found.up.seqs(LIVE)) + 1
    said = encode_point(Point("", "receipt", HOUR, body), epoch=EPOCH, seq=seq)
    case.found.up.add(f"up.{VID}.e.receipt", said)
    case.say(LIVE)


def given_up(case: Case) -> None:
    receipt(case, 4, 5, "evicted: ledger full")
    case.say(BULK, watermark=5)


def receipt_of_the_hubs_own(case: Case) -> None:
    case.bulk(frame(5, 6))
    case.table()
    case.say(BULK, watermark=5, explained=[[4, 4]])


def receipt_unheard(case: Case) -> None:
    case.found.filled = {VID}
    given_up(case)
    case.say(BULK, watermark=3, explained=[])


def receipt_for_another_epoch(case: Case) -> None:
    case.bulk(frame(5, 6))
    case.table()
    receipt(case, 4, 4, "corrupt: x", lane=BULK._replace(epoch=EPOCH - 1))
    case.say(BULK, watermark=5, explained=[[4, 4]])


def second_agent_let_in(case: Case) -> None:
    case.found.not_refused = ["a second agent beside 7 ended with 0, and said: nothing"]


def two_machines_of_which_nobody_told(case: Case) -> None:
    changed(case)
    case.found.clones = [clone()]
    case.found.told_two = {"VID-002"}


def clone(end: int = 2, *staged: int) -> Clone:
    """Return a disk that was cloned right after the start, with so much of lane BULK."""
    open_ = Damage(VID, 0, 0)
    open_.add_rows([("f.imu", frame(9, *staged))] if staged else [])
    # The second machine is in the vehicle from 10 to 20 ns on, when nothing is kept.
    return Clone(VID, open_, {BULK: end}, HOUR + 10, HOUR + 20)


def service_at_an_end(case: Case) -> None:
    case.found.healed_ns = HOUR + SECOND_NS


SERVICE = "service_goes_on"
LOST, TWICE = "nothing_is_lost_without_a_receipt", "nothing_is_there_twice"
EVENTS, HOURS = "events_are_there_once", "no_hour_is_complete_over_a_hole"
WATERMARK, OWED = "the_watermark_is_true", "nothing_is_owed_at_rest"
ONE, NOWHERE = "a_place_has_one_message", "nothing_comes_from_nowhere"
HEADS, WRITES = "both_ends_have_the_same_heads", "config_writes_stand"
REST, ALONE = "it_comes_to_rest", "a_second_agent_is_refused"
TOLD = "two_machines_are_told"
ROOM = "nothing_is_given_up_without_need"
STAMPS, WORDS, ORDER = "stamps_are_true", "words_are_true", "events_keep_their_order"
TIMELY, EARLY = "commands_keep_their_time", "no_hour_is_complete_before_its_end"
COMMAND, HISTORY = "commands_ran_as_said", "the_history_is_what_up_holds"
EXPANDING = "what_expands_is_there_once"
PLANTED: list[tuple[Callable[[Case], None], set[str]]] = [
    (lost, {LOST, OWED}),
    (lost_and_unnoticed, {LOST, WATERMARK, HOURS}),
    (twice, {TWICE}),
    (event_twice, {TWICE}),
    (changed, {ONE}),
    (garbage, {ONE}),
    (quarantined, {ONE}),
    (refused, {NOWHERE}),
    (stranger, {NOWHERE}),
    (event_lost, {EVENTS}),
    (event_lost_beside_receipts, {EVENTS}),
    (event_refused, {EVENTS}),
    (event_not_in_the_twin, {EVENTS}),
    (event_doubled_in_the_twin, {EVENTS}),
    (heads_differ, {HEADS}),
    (head_gone, {WRITES}),
    (write_undone, {WRITES}),
    (write_of_nobody, {WRITES}),
    (write_refused, {WRITES}),
    (event_of_nobody, {NOWHERE}),
    (command_nobody_sent, {NOWHERE}),
    (command_without_end, {COMMAND}),
    (command_given_up_for_no_reason, {COMMAND}),
    (receipt_of_the_other_lane, {LOST}),
    (receipt_for_a_bad_row_of_a_sound_ledger, {LOST}),
    (receipt_of_a_ledger_that_had_room, {LOST}),
    (command_gone, {COMMAND}),
    (command_twice, {COMMAND}),
    (command_expired_and_started, {COMMAND}),
    (command_of_nobody, {COMMAND}),
    (command_without_answer_twice, {COMMAND}),
    (command_without_answer_or_record, {COMMAND}),
    (command_cut_short_by_nothing, {COMMAND}),
    (repeats_of_nothing, {WATERMARK}),
    (repeats_unseen, {WATERMARK}),
    (watermark_over_a_hole, {WATERMARK}),
    (messages_miscounted, {WATERMARK}),
    (bytes_miscounted, {WATERMARK}),
    (highest_seq_too_high, {WATERMARK}),
    (gap_of_what_is_there, {WATERMARK, OWED}),
    (receipt_of_nobody, {WATERMARK}),
    (gap_at_rest, {OWED}),
    (former_epoch_owes, {OWED}),
    (restless, {REST}),
    (complete_over_a_hole, {LOST, HOURS}),
    (second_agent_let_in, {ALONE}),
    (two_machines_of_which_nobody_told, {TOLD}),
    (service_at_an_end, {SERVICE}),
    (history_lacks, {HISTORY}),
    (history_doubles, {HISTORY}),
    (history_invents, {HISTORY}),
    (expanding_lost, {EXPANDING}),
    (expanding_not_in_the_table, {EXPANDING}),
    (expanding_doubled_in_the_table, {EXPANDING}),
    (given_up, {ROOM}),
    (receipt_of_the_hubs_own, {WATERMARK}),
    (receipt_unheard, {WATERMARK}),
    (receipt_for_another_epoch, {WATERMARK}),
    (stamp_too_late, {STAMPS}),
    (stamp_too_early, {STAMPS}),
    (stamp_without_answer_from_the_future, {STAMPS}),
    (stamp_of_a_clock_that_says_it_is_unset, {STAMPS}),
    (stamp_of_a_client, {STAMPS}),
    (event_of_another_time, {STAMPS}),
    (event_before_the_one_before, {ORDER}),
    (word_of_the_past, {WORDS}),
    (word_of_the_future, {WORDS}),
    (command_expired_too_early, {TIMELY}),
    (command_started_too_late, {TIMELY}),
    (command_ended_in_the_future, {TIMELY}),
    (command_accepted_before_it_was_sent, {TIMELY}),
    (complete_before_it_is_over, {EARLY}),
]

"""Violations, each planted in a sound run, and the rules of the checker that must see it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from backhaul_codec import Opaque, Point, encode_point
from backhaul_codec.assurance.completeness import HOUR_NS
from tests.chaos.clone import Clone
from tests.chaos.damage import Damage
from tests.chaos.diary import Entry
from tests.chaos.evidence import (
    BY_AGENT,
    BY_CLIENT,
    LaneName,
    Place,
    heads_of,
)
from tests.chaos.rules_time import SLACK_NS
from tests.chaos.sound_run import (
    BULK,
    CUT,
    EPOCH,
    HOUR,
    LIVE,
    SECOND_NS,
    TIMES,
    VID,
    Case,
    frame,
    happening,
    head,
    readings,
    stamped,
    untimed,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.chaos.diary import Word


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


def heads_differ(case: Case) -> None:
    hub, vehicle = case.found.heads[VID]
    key = next(iter(vehicle))
    case.found.heads[VID] = hub, {key: (*vehicle[key][:3], 1)}


def head_gone(case: Case) -> None:
    case.found.heads[VID] = {}, {}


def write_undone(case: Case) -> None:
    both = heads_of([head(1.0)])
    case.found.heads[VID] = both, both


def write_of_nobody(case: Case) -> None:
    both = heads_of([head(9.0)])
    case.found.heads[VID] = both, both


def write_refused(case: Case) -> None:
    case.told.entries.append(
        Entry("config", VID, HOUR, {"node": "cfg", "value": 4.0}, "refused", HOUR)
    )
    both = heads_of([head(4.0)])
    case.found.heads[VID] = both, both


def event_of_nobody(case: Case) -> None:
    case.event(happening(3, 9))
    case.say(LIVE)


def command_nobody_sent(case: Case) -> None:
    case.found.commands["c9"] = {"id": "c9", "device": VID, "state": "expired", **TIMES}


def command_without_end(case: Case) -> None:
    case.found.commands["c2"]["state"] = "sent"


def command_given_up_for_no_reason(case: Case) -> None:
    case.found.commands["c2"]["code"] = "before-ledger"


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


def command_gone(case: Case) -> None:
    del case.found.commands["c2"]


def command_twice(case: Case) -> None:
    case.found.starts["c1"] = 2


def command_expired_and_started(case: Case) -> None:
    case.found.starts["c3"] = 1


def command_of_nobody(case: Case) -> None:
    case.found.starts["c9"] = 1


def command_without_answer_twice(case: Case) -> None:
    done = {"id": "c4", "device": VID, "name": "once", "state": "done", **TIMES}
    case.found.commands["c4"] = done
    case.found.starts["c4"] = 2


def command_without_answer_or_record(case: Case) -> None:
    case.found.starts["c4"] = 1


def command_cut_short_by_nothing(case: Case) -> None:
    case.found.commands["c4"] = {"id": "c4", **TIMES, **CUT}


def repeats_of_nothing(case: Case) -> None:
    case.say(BULK, repeats=1)


def repeats_unseen(case: Case) -> None:
    case.bulk(frame(2, 3, 4))
    case.say(BULK)


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


def stamp_by(
    case: Case, wrong_ns: int, node: str = BY_AGENT, word: Word = "kept", **more: int
) -> None:
    """Have a reading without a time come with one that is wrong, from the end of its answer on."""
    case.told.entries.append(untimed(node, 40, word))
    end_ns = HOUR + SECOND_NS if word == "kept" else case.found.span[1]
    case.bulk(stamped(node, 40, end_ns + wrong_ns, seq=4, **more), node)
    case.say(BULK)
    case.table()


def stamp_too_late(case: Case) -> None:
    stamp_by(case, SLACK_NS + 1)


def stamp_too_early(case: Case) -> None:
    stamp_by(case, -2 * SECOND_NS - SLACK_NS)


def stamp_without_answer_from_the_future(case: Case) -> None:
    stamp_by(case, SLACK_NS + 1, word="unknown")


def stamp_of_a_clock_that_says_it_is_unset(case: Case) -> None:
    stamp_by(case, SLACK_NS + 1, clock=2)


def stamp_of_a_client(case: Case) -> None:
    case.found.jumps = {VID: [(HOUR - 2, HOUR - 1), (HOUR + SECOND_NS + 1, HOUR + SECOND_NS + 2)]}
    stamp_by(case, SLACK_NS + 1, BY_CLIENT)


def event_of_another_time(case: Case) -> None:
    case.told.entries.append(Entry("event", VID, HOUR, {"event": 3}, "kept", HOUR))
    case.event(happening(3, 3, HOUR + SLACK_NS + 1))
    case.say(LIVE)


def event_before_the_one_before(case: Case) -> None:
    case.told.entries.append(Entry("event", VID, HOUR, {"event": 0}, "kept", HOUR))
    case.event(happening(3, 0))
    case.say(LIVE)


def word(case: Case, time_ns: int) -> None:
    seen = Point("", "seen", time_ns, Opaque(6, b'{"hub_ns": 1}'))
    case.found.up.add(f"up.{VID}.e.seen", encode_point(seen, epoch=EPOCH, seq=3))
    case.say(LIVE)


def new_epoch(case: Case) -> None:
    """Have a vehicle say that a new epoch of its ledger began."""
    seq = max(case.found.up.seqs(LIVE)) + 1
    said = Point("", "epoch", HOUR, Opaque(6, b'{"old": 4, "new": 5, "why": "no word"}'))
    case.found.up.add(f"up.{VID}.e.epoch", encode_point(said, epoch=EPOCH, seq=seq))
    case.say(LIVE)


def word_of_the_past(case: Case) -> None:
    word(case, HOUR - SLACK_NS - 1)


def word_of_the_future(case: Case) -> None:
    word(case, HOUR + HOUR_NS + SLACK_NS + 1)


def command_expired_too_early(case: Case) -> None:
    case.found.commands["c3"]["deadline_ns"] += SECOND_NS + SLACK_NS + 1


def command_started_too_late(case: Case) -> None:
    case.found.commands["c1"]["accepted_ns"] = TIMES["deadline_ns"] + SLACK_NS + 1


def command_ended_in_the_future(case: Case) -> None:
    case.found.commands["c1"]["ended_ns"] = case.found.span[1] + SLACK_NS + 1


def command_accepted_before_it_was_sent(case: Case) -> None:
    case.found.commands["c1"]["accepted_ns"] = HOUR - SLACK_NS - 1


def complete_before_it_is_over(case: Case) -> None:
    case.found.complete_hours[VID].append(HOUR + HOUR_NS)


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

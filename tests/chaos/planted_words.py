"""What is planted in a sound run about commands, writes and times: each breaks one rule of the checker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backhaul_codec import Opaque, Point, encode_point
from backhaul_codec.assurance.completeness import HOUR_NS
from tests.chaos.diary import Entry
from tests.chaos.evidence import (
    BY_AGENT,
    BY_CLIENT,
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
    stamped,
    untimed,
)

if TYPE_CHECKING:
    from tests.chaos.diary import Word


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

"""Each rule of the checker sees what is planted for it, and none of them complains of a sound run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from backhaul_agent.commands.decide import CommandBook
from backhaul_agent.config import CommandConfig
from backhaul_agent.ledger.command_rows import CommandRow, RunOutcome, RunState
from backhaul_codec import Opaque, Point, encode_frame, encode_point
from backhaul_codec.assurance.completeness import HOUR_NS
from tests.chaos.checker import RULES, check, cut_short
from tests.chaos.damage import Damage
from tests.chaos.diary import Diary, Entry, Told
from tests.chaos.evidence import (
    BY_AGENT,
    BY_CLIENT,
    reading_of,
)
from tests.chaos.planted import (
    COMMAND,
    HISTORY,
    LOST,
    PLANTED,
    REST,
    STAMPS,
    TIMELY,
    TWICE,
    given_up,
    receipt,
)
from tests.chaos.planted_words import (
    command_given_up_for_no_reason,
    command_started_too_late,
    new_epoch,
    stamp_by,
)
from tests.chaos.rules_time import SLACK_NS
from tests.chaos.sound_run import (
    BULK,
    CUT,
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
    from pathlib import Path

    from tests.chaos.diary import Word


def test_a_sound_run_breaks_no_rule() -> None:
    case = Case()
    assert check(case.told, case.found) == []


@pytest.mark.parametrize(("plant", "rules"), PLANTED, ids=[plant.__name__ for plant, _ in PLANTED])
def test_a_planted_violation_is_seen_by_its_rule(
    plant: Callable[[Case], None], rules: set[str]
) -> None:
    case = Case()
    plant(case)
    assert set(case.broken()) == rules


def test_of_a_rule_that_is_broken_often_the_first_are_shown_and_the_rest_counted() -> None:
    case = Case()
    for number in range(30):
        case.found.restless.append(f"{number} points are in no frame")
    said = check(case.told, case.found)
    assert len(said) == 21
    assert said[-1] == f"{REST}: and 10 more"


def test_each_rule_has_a_planted_violation() -> None:
    assert {rule.__name__ for rule in RULES} == set.union(*(rules for _, rules in PLANTED))


def test_a_receipt_stands_for_what_is_missing_and_for_no_more_than_it_can() -> None:
    case = Case()
    case.forget(2)
    case.found.complete_hours = {}
    receipt(case, 2, 2, "evicted: ledger full")
    case.found.filled = {VID}
    case.say(BULK)
    assert check(case.told, case.found) == []
    case.told.entries.append(readings(20, 1))
    assert case.broken() == [LOST]


def test_a_command_is_given_up_in_a_new_epoch() -> None:
    case = Case()
    command_given_up_for_no_reason(case)
    assert case.broken() == [COMMAND]
    new_epoch(case)
    assert check(case.told, case.found) == []


def test_the_checker_knows_an_end_that_was_cut_short_by_the_agents_code() -> None:
    row = CommandRow(1, "c1", "once", b"", 0, 1, RunState.RUNNING, 1)
    end = CommandBook([CommandConfig("once")]).decide(row, None, None)
    assert isinstance(end, RunOutcome)
    assert end.code == CUT["code"]
    safe = CommandBook([CommandConfig("once", idempotent=True)]).decide(row, 2, 0)
    for each in (end, safe):
        assert isinstance(each, RunOutcome)
        assert cut_short({"code": each.code.value})


def test_the_hub_tells_no_more_than_a_hundred_ranges_of_a_lane() -> None:
    case = Case()
    case.found.filled = {VID}
    for seq in range(5, 305, 2):
        receipt(case, seq, seq, "evicted: ledger full")
    said = case.say(BULK, watermark=3)
    del said["explained"][100:]
    assert check(case.told, case.found) == []


def test_a_vehicle_whose_disk_was_full_may_give_something_up() -> None:
    case = Case()
    case.found.filled = {VID}
    given_up(case)
    assert check(case.told, case.found) == []
    assert case.found.up.evicted == {VID: 2}


WANT = Point("", "digest", HOUR, Opaque(6, b'{"want": ["imu"]}'))


def told_again(case: Case, *seqs: int) -> None:
    """Have a reading's head come in messages of its own."""
    body = Point("imu", "value", HOUR + 20_000_000, 20.0)
    for seq in seqs:
        case.found.up.add(f"up.{VID}.p.imu.value.%", encode_point(body, epoch=EPOCH, seq=seq))


def test_a_head_may_be_told_again_where_both_ends_compare_and_nowhere_else() -> None:
    case = Case()
    case.told.entries.append(readings(20, 1))
    told_again(case, 3, 4)
    case.found.up.add(f"up.{VID}.e.digest", encode_point(WANT, epoch=EPOCH, seq=5))
    case.say(LIVE)
    case.table()
    assert check(case.told, case.found) == []
    told_again(case, 6, 7)
    case.say(LIVE)
    assert case.broken() == [TWICE, HISTORY]


def test_a_head_is_told_again_right_before_the_question_and_not_some_time_before_it() -> None:
    case = Case()
    case.told.entries.append(readings(20, 1))
    told_again(case, 3, 4)
    seen = Point("", "seen", HOUR, Opaque(6, b'{"hub_ns": 1}'))
    case.found.up.add(f"up.{VID}.e.seen", encode_point(seen, epoch=EPOCH, seq=5))
    case.found.up.add(f"up.{VID}.e.digest", encode_point(WANT, epoch=EPOCH, seq=6))
    case.say(LIVE)
    case.table()
    assert case.broken() == [TWICE]


def test_a_head_is_told_again_only_where_the_question_is_for_it() -> None:
    case = Case()
    case.told.entries.append(readings(20, 1))
    told_again(case, 3, 4)
    other = replace(WANT, value=Opaque(6, b'{"want": ["gps"]}'))
    case.found.up.add(f"up.{VID}.e.digest", encode_point(other, epoch=EPOCH, seq=5))
    case.say(LIVE)
    case.table()
    assert case.broken() == [TWICE]


def test_a_frame_that_says_that_it_was_sent_before_adds_a_row_where_it_is_the_only_one() -> None:
    case = Case()
    case.told.entries.append(readings(20, 2))
    first, second = (Point("imu", "value", HOUR + n * 1_000_000, float(n)) for n in (20, 21))
    for seq, points, again in ((3, [first], False), (4, [first, second], True)):
        body = encode_frame(points, epoch=EPOCH, seq=seq, said_again=again)
        case.found.up.add(f"up.{VID}.p.imu", body)
    case.found.up.add(f"up.{VID}.e.digest", encode_point(WANT, epoch=EPOCH, seq=5))
    case.say(LIVE)
    case.table()
    assert case.broken() == [HISTORY]
    assert case.found.history
    case.found.history[reading_of(VID, "imu", first.time, 20.0)] -= 1
    assert check(case.told, case.found) == []


def test_an_event_that_comes_again_stands_in_the_twin_again() -> None:
    case = Case()
    case.event(happening(2, 2))
    case.say(LIVE, repeats=1)
    case.found.up.repeats[LIVE] = 1
    assert check(case.told, case.found) == []


def test_what_comes_again_as_it_was_is_a_repeat_and_no_violation() -> None:
    case = Case()
    case.bulk(frame(2, 3, 4))
    case.say(BULK, repeats=1)
    assert check(case.told, case.found) == []


def test_an_hour_may_lack_what_was_acknowledged_across_its_end() -> None:
    case = Case()
    entry = readings(20, 1)
    case.told.entries.append(replace(entry, answered_ns=HOUR + HOUR_NS))
    assert case.broken() == [LOST]


def test_the_slack_is_for_every_time_and_no_less() -> None:
    for wrong_ns in (SLACK_NS, -SECOND_NS - SLACK_NS):
        case = Case()
        stamp_by(case, wrong_ns)
        assert check(case.told, case.found) == []


def test_a_jump_between_a_clients_stamp_and_its_answer_is_nobodys_fault() -> None:
    words: list[Word] = ["kept", "unknown"]
    for said in words:
        case = Case()
        case.found.jumps = {VID: [(HOUR + SECOND_NS, HOUR + SECOND_NS)]}
        stamp_by(case, 99 * SECOND_NS, BY_CLIENT, said)
        assert check(case.told, case.found) == []
    case = Case()
    case.found.jumps = {VID: [(HOUR, HOUR)]}
    stamp_by(case, 99 * SECOND_NS, BY_AGENT)
    assert case.broken() == [STAMPS]


def test_a_ledger_made_since_may_say_that_it_does_not_know_the_time() -> None:
    for clock, broken in ((0, [STAMPS]), (1, []), (2, [])):
        case = Case()
        case.found.epochs = {VID: EPOCH - 1}
        stamp_by(case, 99 * SECOND_NS, clock=clock)
        assert case.broken() == broken


def test_a_ledger_made_since_may_be_as_wrong_as_it_says_and_the_first_may_not() -> None:
    for first, broken in ((EPOCH - 1, []), (EPOCH, [STAMPS])):
        case = Case()
        case.found.epochs = {VID: first}
        said = Opaque(6, b'{"quality": "synced", "error_ns": 3000000000}')
        clock = encode_point(Point("", "clock", HOUR, said), epoch=EPOCH, seq=3)
        case.found.up.add(f"up.{VID}.e.clock", clock)
        case.say(LIVE)
        stamp_by(case, 3 * SECOND_NS + SLACK_NS)
        assert case.broken() == broken


def test_what_was_said_before_any_damage_is_judged_by_the_ledger_of_then() -> None:
    for damaged_ns, broken in ((HOUR, []), (HOUR + HOUR_NS // 2, [TIMELY])):
        case = Case()
        case.found.damages = [Damage(VID, EPOCH, damaged_ns)]
        said = Opaque(6, b'{"quality": "synced", "error_ns": 3000000000}')
        clock = encode_point(Point("", "clock", HOUR, said), epoch=EPOCH + 1, seq=1)
        case.found.up.add(f"up.{VID}.e.clock", clock)
        command_started_too_late(case)
        assert [rule for rule in case.broken() if rule == TIMELY] == broken


async def test_a_diary_says_what_was_asked_and_answered(tmp_path: Path) -> None:
    path = tmp_path / "diary"
    times = iter(range(100))
    diary = Diary(path, lambda: next(times))
    body = {"node": "imu", "time_ns": 1_000_000, "first": 7, "many": 2}
    kept = await diary.asked("readings", VID, **body)
    refused = await diary.asked("event", VID, event=3)
    await diary.asked("command", VID, id="c1")
    await diary.answered(kept, "kept")
    await diary.answered(refused, "refused")
    diary.close()
    told = Told.of(path.read_text().splitlines(keepends=True))
    assert told.entries[0] == Entry("readings", VID, 0, body, "kept", 3)
    assert sorted(reading.value for reading in told.readings("kept")) == [7.0, 8.0]
    assert [each.number for each in told.happenings("refused")] == [3]
    assert told.commands("unknown") == {"c1"}
    cut = Told.of(path.read_text()[:-3].splitlines(keepends=True))
    assert cut.happenings("unknown") == told.happenings("refused")

"""Which message a channel sends next: bundles, names that stay, pauses."""

from __future__ import annotations

from backhaul_hub.alerts.outbox import BACKOFF_S, BACKOFF_S_MAX, BUNDLE_MAX, ChannelQueue
from tests.support.alerting import notice


def queue(*numbers: int, interval_s: float = 5.0, chance: float = 1.0) -> ChannelQueue:
    made = ChannelQueue("a", interval_s, lambda: chance)
    made.add(notice(number) for number in numbers)
    return made


def test_all_that_waits_goes_in_one_message() -> None:
    some = queue(1, 2, 3)
    message = some.next(0)
    assert message is not None
    assert [each.alert.key.device for each in message.notices] == ["VID-001", "VID-002", "VID-003"]
    some.sent(0)
    assert len(some) == 0
    assert some.next(99) is None


def test_what_comes_meanwhile_is_no_part_of_a_message_that_may_have_left() -> None:
    some = queue(1)
    first = some.next(0)
    some.failed("no answer", 0)
    some.add([notice(2)])
    assert some.next(99) == first
    some.sent(99)
    second = some.next(200)
    assert first is not None
    assert second is not None
    assert [each.alert.key.device for each in second.notices] == ["VID-002"]
    assert second.id != first.id


def test_a_message_has_the_same_name_after_a_restart() -> None:
    before = queue(1, 2).next(0)
    assert before is not None
    again = queue(1, 2, 3)
    again.resume(before.id, before.notices)
    assert again.next(0) == before
    again.sent(0)
    assert [each.alert.key.device for each in again.waiting] == ["VID-003"]


def test_between_two_messages_there_is_a_pause() -> None:
    some = queue(1)
    assert some.next(0) is not None
    some.sent(0)
    some.add([notice(2)])
    assert some.next(4.9) is None
    assert some.pause_s(4) == 1
    assert some.next(5) is not None


def test_failures_back_off_up_to_a_limit_and_lose_nothing() -> None:
    some, now_s, pauses = queue(1), 0.0, []
    for _ in range(40):
        assert some.next(now_s) is not None
        pauses.append(some.failed("down", now_s))
        assert some.next(now_s) is None
        now_s += pauses[-1]
    assert pauses[:3] == [BACKOFF_S, 2 * BACKOFF_S, 4 * BACKOFF_S]
    assert max(pauses) == pauses[-1] == BACKOFF_S_MAX
    assert (some.error, some.failures, len(some)) == ("down", 40, 1)
    some.sent(now_s)
    assert (some.error, some.failures) == ("", 0)


def test_pauses_differ_by_chance() -> None:
    assert queue(1, chance=0.0).failed("down", 0) == BACKOFF_S / 2


def test_a_receiver_may_ask_for_a_longer_pause_within_a_limit() -> None:
    assert queue(1).failed("busy", 0, after_s=60) == 60
    assert queue(1).failed("busy", 0, after_s=1e9) == BACKOFF_S_MAX


def test_a_channel_that_was_mended_is_tried_at_once() -> None:
    some = queue(1)
    some.next(0)
    some.failed("down", 0)
    some.retry()
    assert some.next(0) is not None


def test_a_notice_waits_once() -> None:
    some = queue(1, 1)
    assert len(some) == 1
    assert some.waits(notice(1).alert.id)
    assert not some.waits(notice(2).alert.id)
    some.next(0)
    some.sent(0)
    assert not some.waits(notice(1).alert.id)


def test_a_message_is_bounded() -> None:
    some = queue(*range(BUNDLE_MAX + 5))
    first = some.next(0)
    assert first is not None
    assert len(first.notices) == BUNDLE_MAX
    some.sent(0)
    assert len(some) == 5

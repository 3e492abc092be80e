"""Whether an epoch goes on: only by the word of all who may know better."""

from __future__ import annotations

import pytest

from backhaul_agent.commit.epochs import EPOCHS_MAX, PATIENCE_OWN_S, PATIENCE_S, Epochs, Verdict

LAST = {"live": 10, "bulk": 20}


def judge(*, fresh: bool = False) -> Epochs:
    return Epochs(fresh=fresh, lanes=LAST, last_seq=lambda lane: LAST.get(lane, 0))


def look_at_out(it: Epochs) -> None:
    for lane, last in LAST.items():
        it.out_knows(lane, last)


def test_a_fresh_ledger_goes_on_at_once() -> None:
    it = judge(fresh=True)
    assert it.may_commit(0.0, urgent=False)
    assert it.verdict is Verdict.GOES_ON


def test_it_takes_the_hub_and_every_out() -> None:
    it = judge()
    it.hub_knows({"live": 10, "bulk": 19})
    it.out_knows("live", 10)
    assert not it.may_commit(0.0, urgent=False)
    it.out_knows("bulk", 0)
    assert it.verdict is Verdict.GOES_ON


def test_outs_alone_are_not_enough() -> None:
    it = judge()
    look_at_out(it)
    assert it.verdict is Verdict.WAITING


@pytest.mark.parametrize("highest", [{"bulk": 21}, {"live": 11, "bulk": 3}, {"n_motor": 1}])
def test_a_hub_that_knows_more_ends_it(highest: dict[str, int]) -> None:
    it = judge()
    look_at_out(it)
    it.hub_knows(highest)
    assert it.verdict is Verdict.OVER
    assert it.why.startswith("the hub knows more of ")
    assert it.may_commit(0.0, urgent=False)


@pytest.mark.parametrize(("seq", "stranger"), [(21, False), (20, True)])
def test_an_out_that_knows_more_ends_it(seq: int, stranger: bool) -> None:
    it = judge()
    it.hub_knows({})
    it.out_knows("live", 10)
    it.out_knows("bulk", seq, stranger=stranger)
    assert (it.verdict, it.why) == (Verdict.OVER, "OUT holds more of bulk than the ledger")


def test_without_a_link_nobody_is_made_to_wait() -> None:
    it = judge()
    it.note_link(False, 0.0)
    assert not it.may_commit(0.0, urgent=False)
    assert it.due_s() is None
    assert it.may_commit(0.0, urgent=True)
    assert (it.verdict, it.why) == (Verdict.OVER, "started without the hub's word")


@pytest.mark.parametrize("up", [True, None])
def test_a_publisher_waits_for_two_seconds(up: bool | None) -> None:
    it = judge()
    it.note_link(up, 0.0)
    assert not it.may_commit(7.0, urgent=True)
    assert it.due_s() == 7.0 + PATIENCE_S
    assert not it.may_commit(7.0 + PATIENCE_S - 0.1, urgent=True)
    assert it.may_commit(7.0 + PATIENCE_S, urgent=True)
    assert it.verdict is Verdict.OVER


def test_a_link_that_goes_ends_the_wait() -> None:
    it = judge()
    it.note_link(True, 0.0)
    assert not it.may_commit(1.0, urgent=True)
    it.note_link(False, 1.5)
    assert it.may_commit(1.5, urgent=True)


def test_own_notes_wait_longer_but_not_for_ever_while_the_link_is_up() -> None:
    it = judge()
    it.note_link(True, 3.0)
    assert not it.may_commit(3.0 + PATIENCE_OWN_S - 0.1, urgent=False)
    assert it.may_commit(3.0 + PATIENCE_OWN_S, urgent=False)


def test_the_word_that_comes_too_late_changes_nothing() -> None:
    it = judge()
    it.note_link(False, 0.0)
    assert it.may_commit(0.0, urgent=True)
    look_at_out(it)
    it.hub_knows({})
    assert it.verdict is Verdict.OVER
    it.opened()
    assert (it.verdict, it.why) == (Verdict.GOES_ON, "")


def test_it_may_end_at_any_time() -> None:
    it = judge(fresh=True)
    it.behind("the hub knows seq 9 of bulk")
    it.behind("another")
    assert (it.verdict, it.why) == (Verdict.OVER, "the hub knows seq 9 of bulk")


def test_with_too_many_former_epochs_it_goes_on_without_the_word() -> None:
    it = judge()
    it.former = EPOCHS_MAX
    it.note_link(False, 0.0)
    assert it.may_commit(0.0, urgent=True)
    assert it.verdict is Verdict.GOES_ON

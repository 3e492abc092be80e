"""Which kinds of faults a run draws, by what it has; and what the table of history may have alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos.checker import check
from tests.chaos.kinds import CLUSTER, HABITS, HISTORY, STANDBY, habits
from tests.chaos.losses import damage, gone_with_a_ledger
from tests.chaos.planted import HISTORY as RULE
from tests.chaos.run import DEVICES, Plan
from tests.chaos.schedule import Fault, from_line
from tests.chaos.sound_run import HOUR, Case

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    "parts", [(), (HISTORY,), (CLUSTER,), (STANDBY,), (HISTORY, CLUSTER, STANDBY)]
)
def test_what_is_drawn_and_read_is_what_can_happen_in_a_run(parts: tuple[str, ...]) -> None:
    possible = habits(parts)
    drawn = Plan.of(1, 20_000.0, parts=parts).faults
    assert {fault.kind for fault in drawn} == possible.keys()
    for name in HABITS.keys() - possible.keys():
        with pytest.raises(ValueError, match=f"no {name}"):
            from_line(str(Fault(1.0, 1.0, name, "hub")), possible, DEVICES)


def test_a_run_of_some_kinds_draws_those_and_names_what_is_none() -> None:
    drawn = Plan.of(1, 2_000.0, only=("late", "cut")).faults
    assert {fault.kind for fault in drawn} == {"cut", "late"}
    with pytest.raises(ValueError, match="there is no kill-spark, only 100kbit,"):
        Plan.of(1, 60.0, only=("cut", "kill-spark"))


def test_a_run_says_what_it_had_when_it_says_how_to_run_it_again() -> None:
    alone = Plan(1, 60.0, (), publish_s=3.0).command()
    assert alone == "make chaos SEED=1 MINUTES=1 FAULTS= CHAOS_ARGS='--publish 3'"
    again = Plan(1, 60.0, (), parts=(HISTORY, CLUSTER)).command()
    assert (
        again
        == "make chaos SEED=1 MINUTES=1 FAULTS= CHAOS_ARGS='--history --cluster --publish 0.3'"
    )


def read_before_it_was_gone(case: Case) -> None:
    """Have readings 3 and 4 stand in the table, and nowhere else: UP and a ledger have lost them."""
    before = dict(case.found.history or {})
    gone_with_a_ledger(case)
    assert case.found.history is not None
    case.found.history |= before
    case.found.rolled_back = [(HOUR, HOUR + 1)]


def read_though_up_was_never_put_back(case: Case) -> None:
    read_before_it_was_gone(case)
    case.found.rolled_back = []


def read_and_gone_with_another_ledger(case: Case) -> None:
    read_before_it_was_gone(case)
    case.found.damages = [damage(3, 4, device="VID-002"), *case.found.damages]
    case.found.damages[1].readings.pop()


def read_twice_before_it_was_gone(case: Case) -> None:
    read_before_it_was_gone(case)
    assert case.found.history is not None
    case.found.history[min(case.found.damages[0].readings)] = 2


def doubled_though_up_has_it(case: Case) -> None:
    read_before_it_was_gone(case)
    assert case.found.history is not None
    kept = min(case.found.up.readings)
    case.found.damages[0].readings.add(kept)
    case.found.history[kept] = 2


@pytest.mark.parametrize(
    "plant",
    [
        read_though_up_was_never_put_back,
        read_and_gone_with_another_ledger,
        read_twice_before_it_was_gone,
        doubled_though_up_has_it,
    ],
)
def test_what_the_table_alone_has_without_excuse_is_seen(plant: Callable[[Case], None]) -> None:
    case = Case()
    plant(case)
    assert RULE in case.broken()


def test_what_up_lost_and_a_damaged_ledger_could_not_send_again_may_stand_in_the_table() -> None:
    case = Case()
    read_before_it_was_gone(case)
    assert check(case.told, case.found) == []


def test_what_a_seed_draws_does_not_depend_on_the_order_of_imports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = Plan.of(1, 60.0)
    monkeypatch.setattr("tests.chaos.kinds.HABITS", dict(reversed(HABITS.items())))
    assert Plan.of(1, 60.0) == before

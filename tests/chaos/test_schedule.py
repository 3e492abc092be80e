"""A seed says exactly what happens, and so does the line that it is printed as."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from tests.chaos.schedule import HUB, Fault, Habit, draw, from_line, to_line
from tests.chaos.shrink import shrink

HABITS = {
    "cut": Habit(4, 5.0, "link"),
    "flap": Habit(2, 3.0, "link"),
    "kill-agent": Habit(3, 2.0, "agent"),
    "kill-hub": Habit(1, 2.0, "server", at_hub=True),
}
DEVICES = ("VID-001", "VID-002")


def drawn(seed: int, length_s: float = 60.0) -> list[Fault]:
    return draw(seed, HABITS, DEVICES, length_s=length_s, pause_s=0.8)


def test_a_seed_gives_the_same_faults_and_another_seed_others() -> None:
    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)


def test_faults_of_one_part_never_overlap_and_all_are_over_in_time() -> None:
    kinds: Counter[str] = Counter()
    for seed in range(100):
        free_at_s: dict[tuple[str, str], float] = {}
        for fault in drawn(seed):
            part = fault.target, HABITS[fault.kind].part
            assert free_at_s.get(part, 0.0) <= fault.at_s <= fault.end_s <= 60.0
            assert (fault.target == HUB) == HABITS[fault.kind].at_hub
            free_at_s[part] = fault.end_s
            kinds[fault.kind] += 1
    assert kinds.keys() == HABITS.keys()


def test_what_is_printed_is_what_was_drawn() -> None:
    for seed in range(100):
        faults = drawn(seed)
        line = to_line(faults)
        assert not set(line) & set(" '\"$;\n")
        assert from_line(line, HABITS, DEVICES) == faults
    assert from_line("", HABITS, DEVICES) == []


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("1.0+1.0:cut", "no fault"),
        ("1.0:cut@VID-001", "no fault"),
        ("1.0+1.0:melt@VID-001", "no melt"),
        ("1.0+1.0:cut@VID-003", "VID-001, VID-002"),
        ("1.0+1.0:kill-hub@VID-001", "hub only"),
        ("1.0+1.0:cut@VID-001,x", "no fault"),
    ],
)
def test_a_line_that_is_wrong_is_refused_with_a_reason(line: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        from_line(line, HABITS, DEVICES)


def test_shrinking_finds_exactly_the_faults_that_it_takes() -> None:
    for seed in range(200):
        random = Random(seed)
        items = list(range(random.randint(1, 60)))
        guilty = set(random.sample(items, random.randint(1, min(4, len(items)))))
        found = shrink(items, guilty.issubset, trials_max=10_000)
        assert found == sorted(guilty)


def test_shrinking_ends_when_its_trials_are_used_up_with_something_that_fails() -> None:
    trials: list[list[int]] = []

    def fails(left: list[int]) -> bool:
        trials.append(left)
        return 3 in left and 57 in left

    found = shrink(list(range(64)), fails, trials_max=9)
    assert len(trials) == 9
    assert {3, 57} <= set(found)
    assert len(found) < 64

"""IN's sleep and wake under cuts, kills and lost answers: nothing that the hub says goes unheard, and IN sleeps again."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from backhaul_agent.push.in_sleep import InSleep, SleepPhase, SleepStep
from backhaul_hub.links.beside import Beside
from tests.simulation.in_sleep import Life, SleepError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backhaul_codec.kinds import Lane

pytestmark = pytest.mark.slow
SEEDS = 40
SEEDS_MAX = 400


def test_whatever_happens_all_is_heard_and_in_sleeps() -> None:
    slept = 0
    for seed in range(SEEDS):
        try:
            slept += Life(Random(seed)).go()
        except SleepError as violation:
            pytest.fail(f"seed {seed}: {violation}")
    assert slept > 10 * SEEDS


class Hasty(InSleep):
    """The source goes before the hub has said how far DOWN goes."""

    def _fall(self, now_s: float, read_to: Mapping[Lane, int]) -> SleepStep:
        step = super()._fall(now_s, read_to)
        return SleepStep.LOOK if step is SleepStep.REST and self._asked else step


class Unlistening(InSleep):
    """The agent does not listen beside before the source goes, but afterwards."""

    @property
    def listens(self) -> bool:
        return self.phase is SleepPhase.ASLEEP

    @listens.setter
    def listens(self, _: bool) -> None: ...


class Content(InSleep):
    """What was heard beside is enough: IN is not woken to bring it for good."""

    def wake(self, now_s: float) -> None:
        if self.phase is not SleepPhase.ASLEEP:
            super().wake(now_s)


class Trustful(Beside):
    """A vehicle whose link came up is not woken: its agent may not have seen that it was gone."""

    def linked(self, device: str, now_s: float) -> None:
        self.gone(device)


UNHEARD, BROUGHT = "has not heard", "never brought"


@pytest.mark.parametrize(
    ("sleep", "beside", "expected"),
    [
        (Hasty, Beside, UNHEARD),
        (Unlistening, Beside, UNHEARD),
        (Content, Beside, BROUGHT),
        (InSleep, Trustful, UNHEARD),
    ],
)
def test_a_planted_bug_is_found(sleep: type[InSleep], beside: type[Beside], expected: str) -> None:
    found = ""
    for seed in range(SEEDS_MAX):
        try:
            Life(Random(seed), sleep, beside).go()
        except SleepError as violation:
            found = str(violation)
            break
    assert expected in found

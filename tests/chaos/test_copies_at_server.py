"""With real servers: second agents, lost registries, older copies of ledgers: each in a short run of fixed faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos.run import DEVICES, Plan, run
from tests.chaos.schedule import HUB, Fault

if TYPE_CHECKING:
    from pathlib import Path

LENGTH_S = 12.0


@pytest.mark.nats
@pytest.mark.chaos
@pytest.mark.timeout(400)
@pytest.mark.usefixtures("toxiproxy")
@pytest.mark.parametrize(("kind", "targets"), [("second-agent", DEVICES), ("lost-hub-db", (HUB,))])
async def test_a_second_agent_is_refused_and_a_lost_registry_rebuilt(
    kind: str, targets: tuple[str, ...], tmp_path: Path
) -> None:
    # A lost registry twice: the second time what was rebuilt is lost.
    times_s = (3.0, 8.0) if targets == (HUB,) else (5.0,)
    plan = tuple(Fault(at_s, 1.0, kind, each) for at_s in times_s for each in targets)
    outcome = await run(Plan(7, LENGTH_S, plan), tmp_path)
    assert outcome.wrong == [], str(outcome)
    assert outcome.counts["lost"] == 0, str(outcome)
    assert outcome.kinds == {kind: len(plan)}, str(outcome)


@pytest.mark.nats
@pytest.mark.chaos
@pytest.mark.timeout(400)
@pytest.mark.usefixtures("toxiproxy")
async def test_of_an_older_ledger_nothing_is_lost_that_stands_in_out_or_at_the_hub(
    tmp_path: Path,
) -> None:
    """Links are cut before the copies are put back, so that OUT has what the hub has not."""
    one, two = DEVICES
    plan = [
        (2.0, 4.0, "old-ledger", one),
        (2.5, 4.0, "old-ledger-wiped", two),
        (5.0, 2.0, "cut", one),
        (5.0, 2.5, "cut", two),
        (9.0, 4.0, "old-ledger-trimmed", one),
        (12.0, 3.0, "cut", one),
    ]
    outcome = await run(Plan(7, 18.0, tuple(Fault(*each) for each in plan)), tmp_path)
    assert outcome.wrong == [], str(outcome)
    assert outcome.counts["lost"] == 0, str(outcome)
    assert not outcome.idle, str(outcome)

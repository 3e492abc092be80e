"""What is delivered once more is counted, runs nothing twice and doubles nothing, on a link that is whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos.run import DEVICES, Plan, run
from tests.chaos.schedule import Fault

if TYPE_CHECKING:
    from pathlib import Path

KINDS = ("again-up", "again-down", "again-command")
LENGTH_S = 8.0
pytestmark = [
    pytest.mark.nats,
    pytest.mark.chaos,
    pytest.mark.timeout(400),
    pytest.mark.usefixtures("toxiproxy"),
]


async def test_what_comes_once_more_is_counted_and_changes_nothing(tmp_path: Path) -> None:
    faults = tuple(
        Fault(at_s, 0.2, kind, device)
        for at_s in (3.0, 5.0, 7.0)
        for kind in KINDS
        for device in DEVICES
    )
    outcome = await run(Plan(3, LENGTH_S, faults), tmp_path)
    assert outcome.wrong == [], str(outcome)
    assert outcome.counts["lost"] == 0, str(outcome)
    assert outcome.counts["repeats"] > 0, str(outcome)
    for kind in KINDS:
        assert outcome.counts.get(f"copies by {kind}", 0) > 0, str(outcome)

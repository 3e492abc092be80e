"""With real servers: what two machines with one cloned disk excuse, and what they do not; and a short run of fixed faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos.run import DEVICES, Plan, run
from tests.chaos.schedule import Fault

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.nats
@pytest.mark.chaos
@pytest.mark.timeout(400)
@pytest.mark.usefixtures("toxiproxy")
async def test_of_two_machines_with_one_disk_nothing_is_lost_that_was_brought_up(
    tmp_path: Path,
) -> None:
    """Both of the first are offline from the image on, one of the second at its end: these differ, and lose."""
    one, two = DEVICES
    plan = [(2.0, 14.0, "clone", one), (2.0, 14.0, "clone", two), (12.0, 5.0, "cut", two)]
    outcome = await run(Plan(11, 20.0, tuple(Fault(*each) for each in plan)), tmp_path)
    assert outcome.wrong == [], str(outcome)
    assert outcome.counts["lost"] == 0, str(outcome)
    assert not outcome.idle, str(outcome)
    assert outcome.counts["vehicles of which two machines wrote in one place"] > 0, str(outcome)

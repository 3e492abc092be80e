"""The history is whole though Spark's job was killed and stood still while it was written."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from tests.chaos.kinds import HISTORY
from tests.chaos.run import Plan, run
from tests.chaos.schedule import Fault

if TYPE_CHECKING:
    from pathlib import Path

LENGTH_S = 10.0
FAULTS = (
    Fault(1.0, 1.0, "kill-spark", "hub"),
    Fault(2.0, 0.5, "again-up", "VID-001"),
    Fault(4.0, 2.0, "freeze-spark", "hub"),
    Fault(5.0, 1.0, "kill-server", "hub"),
)
pytestmark = [
    *(
        pytest.mark.nats,
        pytest.mark.chaos,
        pytest.mark.spark,
        pytest.mark.timeout(600),
        pytest.mark.usefixtures("toxiproxy"),
    ),
    # Of a connection that is given up while nats-py makes it, nobody holds the socket any more.
    pytest.mark.filterwarnings("ignore:unclosed <StreamWriter:ResourceWarning"),
]


async def test_the_table_has_all_of_it_once_though_the_job_was_killed(tmp_path: Path) -> None:
    plan = Plan(4, LENGTH_S, FAULTS, publish_s=1.0, parts=(HISTORY,))
    outcome = await run(plan, tmp_path)
    gc.collect()  # what such a connection left behind, while it is known for what it is
    assert outcome.wrong == [], str(outcome)
    assert outcome.thin() == [], str(outcome)
    assert outcome.counts["lost"] == 0, str(outcome)

"""Conservation under faults: a fixed set of seeds of all that one hub can suffer, judged from outside.

BACKHAUL_CHAOS_SEEDS=7 or 10-30 or 1,5,10-12 runs others; `make chaos` runs longer ones (docs/reliability.md).
"""

from __future__ import annotations

import gc
import logging
import os
from typing import TYPE_CHECKING

import pytest

from tests.chaos.run import Plan, run

if TYPE_CHECKING:
    from pathlib import Path

LENGTH_S = 20.0
SEEDS = "4,2,3,5"
"""The first fills a ledger and damages ledgers, the others have all that is done to disks and hub.db."""
log = logging.getLogger(__name__)
pytestmark = [
    *(
        pytest.mark.nats,
        pytest.mark.chaos,
        pytest.mark.timeout(600),
        pytest.mark.usefixtures("toxiproxy"),
    ),
    # Of a connection that is given up while nats-py makes it, nobody holds the socket any more.
    pytest.mark.filterwarnings("ignore:unclosed <StreamWriter:ResourceWarning"),
]


def seeds() -> list[int]:
    """Return what BACKHAUL_CHAOS_SEEDS asks for: numbers and ranges, with commas between."""
    chosen: list[int] = []
    for part in (os.environ.get("BACKHAUL_CHAOS_SEEDS") or SEEDS).split(","):
        low, _, high = part.partition("-")
        chosen += range(int(low), int(high or low) + 1)
    return chosen


def test_the_fixed_set_fills_ledgers_and_damages_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BACKHAUL_CHAOS_SEEDS", raising=False)
    drawn = {fault.kind for seed in seeds() for fault in Plan.of(seed, LENGTH_S).faults}
    assert drawn >= {"full-ledger", "damage-ledger", "clone", "lost-hub-db", "second-agent"}
    assert drawn >= {"old-ledger-trimmed", "old-ledger-wiped"}


@pytest.mark.parametrize("seed", seeds())
async def test_what_was_acknowledged_is_there_once_whatever_fails(
    seed: int, tmp_path: Path
) -> None:
    outcome = await run(Plan.of(seed, LENGTH_S), tmp_path)
    gc.collect()  # what such a connection left behind, while it is known for what it is
    log.warning("%s", outcome)
    assert outcome.wrong == [], str(outcome)
    assert outcome.thin() == [], str(outcome)
    assert outcome.counts["lost"] == 0, str(outcome)

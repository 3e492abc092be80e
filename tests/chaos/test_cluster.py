"""A hub of three servers loses one, then two, then is parted: nothing is lost, nothing comes twice."""

from __future__ import annotations

import gc
import re
from typing import TYPE_CHECKING

import pytest

from tests.chaos.kinds import CLUSTER
from tests.chaos.run import DEVICES, Plan, run
from tests.chaos.schedule import Fault

if TYPE_CHECKING:
    from pathlib import Path

LENGTH_S = 16.0
FAULTS = (
    Fault(1.0, 1.0, "kill-server", "hub"),
    Fault(2.5, 1.5, "cut", "VID-001"),
    Fault(3.0, 1.0, "freeze-server", "hub"),
    Fault(5.0, 5.0, "lose-two", "hub"),
    Fault(11.0, 1.0, "half-open", "VID-002"),
    Fault(12.0, 3.5, "part-servers", "hub"),
)
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


async def test_nothing_is_lost_where_the_hub_loses_one_of_three_servers_and_then_two(
    tmp_path: Path,
) -> None:
    outcome = await run(Plan(5, LENGTH_S, FAULTS, parts=(CLUSTER,)), tmp_path)
    gc.collect()  # what such a connection left behind, while it is known for what it is
    assert outcome.wrong == [], str(outcome)
    assert outcome.thin() == [], str(outcome)
    assert outcome.counts["lost"] == 0, str(outcome)
    for device in DEVICES:  # each dials three proxies, and no server itself
        leaf = (tmp_path / device / "leaf.conf").read_text()
        dialled = set(re.findall(r"127\.0\.0\.1:(\d+)", leaf[leaf.index("urls:") :]))
        served = re.findall(r'leafnodes \{\s+listen: "127\.0\.0\.1:(\d+)"', _servers(tmp_path))
        assert len(dialled) == len(served) == 3
        assert dialled.isdisjoint(served)


def _servers(directory: Path) -> str:
    return "".join(path.read_text() for path in (directory / "hub").glob("servers/*/hub.conf"))

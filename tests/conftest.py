"""What all tests share: no deadlines in examples, and how several processes divide them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from backhaul_agent.client import connect
from demo.patient import PATIENCE_S

if TYPE_CHECKING:
    import pytest
    from xdist.remote import Producer  # type: ignore[import-untyped]

# A machine with other work to do is slow, not wrong.
settings.register_profile("backhaul", deadline=None)
settings.load_profile("backhaul")

# So is whoever does not answer a program within the five seconds that it gives by itself.
connect.__wrapped__.__kwdefaults__["wait_s"] = PATIENCE_S  # type: ignore[attr-defined]

ROOT = Path(__file__).parents[1]
LONGEST = (
    *("servers of integration", "spark", "servers of hub", "servers of agent"),
    *("servers of security", "servers of deploy", "servers of spark"),
)


class Division(LoadScopeScheduling):  # type: ignore[misc]
    """Has one process take all files that need the JVM, and one all others of a directory that start
    servers.

    The servers' tests mostly wait; many at a time on two cores would wait for one another, and all
    in one process would be what everybody waits for. Marks of xdist's own (`loadgroup`) would say the
    same, but xdist 3.8 does not see them with pytest 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        return _group(nodeid.partition("::")[0])


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Division:
    config.option.loadscopereorder = False  # by their numbers, the JVM's few would come last
    return Division(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have what takes longest begin first: at the end nobody waits for one process."""
    items.sort(key=lambda item: _rank(_group(item.nodeid.partition("::")[0])))


def _rank(group: str) -> int:
    return LONGEST.index(group) if group in LONGEST else len(LONGEST)


@cache
def _group(file: str) -> str:
    text = (ROOT / file).read_text()
    for mark in ("spark", "chaos", "nats"):
        if f"pytest.mark.{mark}" in text:
            return "spark" if mark == "spark" else f"servers of {Path(file).parts[1]}"
    return file

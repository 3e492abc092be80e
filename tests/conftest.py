"""What all tests share: no deadlines in examples, and how several processes divide them."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from backhaul_agent.client import connect
from tests import leftovers, second_look
from tests.leftovers import _without_leftovers  # noqa: F401 - a fixture of all files
from tests.support.rig.patient import PATIENCE_S

if TYPE_CHECKING:
    import pytest
    from xdist.remote import Producer  # type: ignore[import-untyped]

# A machine with other work to do is slow, not wrong.
settings.register_profile("backhaul", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("backhaul"), max_examples=25)
settings.load_profile("backhaul")

# So is whoever does not answer a program within the five seconds that it gives by itself.
connect.__wrapped__.__kwdefaults__["wait_s"] = PATIENCE_S  # type: ignore[attr-defined]

# A JVM that lives for a test compiles once, quickly, and not again for speed: session and first job take
# two thirds of the time. Read by Spark's launcher, also of jobs that tests start as processes.
for name in ("SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS"):
    os.environ.setdefault(name, "-XX:TieredStopAtLevel=1")

ROOT = Path(__file__).parents[1]
NOT_QUICK = "nats or chaos or spark or slow"
_NONE_QUICK = re.compile(r"^pytestmark = .*\bmark\.(?:nats|chaos|spark|slow)\b", re.MULTILINE)
JVM = "JVM"
LONGEST = (
    *(JVM, "servers of integration", "servers of chaos", "servers of security", "servers of hub"),
    *("servers of agent", "servers of deploy", "servers of spark"),
)


class Division(LoadScopeScheduling):  # type: ignore[misc]
    """Has one process take all files that need the JVM, and divides all others file by file.

    Marks of xdist's own (`loadgroup`) would say the same, but xdist 3.8 does not see them with
    pytest 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return JVM if _kind(file) == JVM else file


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick", action="store_true", help="tests that need no server, no table, and little time"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.option.quick:
        config.option.markexpr = f"not ({NOT_QUICK})"
        settings.load_profile("quick")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file whose tests are all left out: a third of a quick run went there."""
    if not config.option.quick or collection_path.suffix != ".py":
        return None
    return bool(_NONE_QUICK.search(collection_path.read_text())) or None


def pytest_xdist_auto_num_workers() -> int:
    """Have three processes on two cores: what starts servers waits for most of its time."""
    cores = len(os.sched_getaffinity(0))
    return cores + cores // 2


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Division:
    config.option.loadscopereorder = False  # by their numbers, the JVM's few would come last
    return Division(config, log)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    leftovers.pytest_sessionfinish(session)
    second_look.pytest_sessionfinish(session, exitstatus)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have what takes longest begin first: at the end nobody waits for one process."""
    items.sort(key=lambda item: _rank(_kind(item.nodeid.partition("::")[0])))


def _rank(kind: str) -> int:
    return LONGEST.index(kind) if kind in LONGEST else len(LONGEST)


@cache
def _kind(file: str) -> str:
    text = (ROOT / file).read_text()
    if "pytest.mark.spark" in text:
        return JVM
    servers = any(f"pytest.mark.{mark}" in text for mark in ("chaos", "nats"))
    return f"servers of {Path(file).parts[1]}" if servers else file

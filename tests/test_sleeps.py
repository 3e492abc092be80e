"""A test waits for a condition, never for a time: sleeps outside of loops are judged, and only become fewer."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
SLEEP = re.compile(r"\bsleep\((?!0\))")
# In a loop a sleep is the pause between two looks, or paces a load. Of chaos a fault's length is what is planned.
PACED = "tests/chaos/"
ALLOWED = {
    "tests/agent/test_consumer_reset.py": 1,  # the server tells nobody when it writes its file
    "tests/agent/test_lane.py": 1,  # stands in the place of asyncio.sleep
    "tests/agent/test_timekeeper.py": 1,  # a question that must not come: ten times as long as it would take
    "tests/golden/make_world.py": 4,  # rows must be older than an age, commands than their deadline
    "tests/hub/test_control_at_server.py": 1,  # stands in the place of the pause between two looks
    "tests/hub/test_registry.py": 1,  # SQLite tells nobody that a BEGIN waits
    "tests/integration/test_clocks.py": 1,  # longer than the agent's patience, which must not end
    "tests/integration/test_in_sleep.py": 5,  # what an idle link carries in a time; cuts that last
    "tests/integration/test_recordings.py": 1,  # a cut that lasts while recordings are replayed
    "tests/support/leafs/stand_in.py": 4,  # an agent's own patience, before it has its lanes pushed and IN sleep
}
_LOOPS = (ast.While, ast.For, ast.AsyncFor)
_NAMES = ("asyncio.sleep", "time.sleep", "sleep")


def waits(node: ast.AST) -> Iterator[int]:
    """Yield the lines below a node that call `sleep`, but for `sleep(0)` and those in a loop."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _LOOPS):
            continue
        if isinstance(child, ast.Call) and ast.unparse(child.func) in _NAMES:
            if ast.unparse(child.args[0]) != "0":
                yield child.lineno
            continue
        yield from waits(child)


@pytest.mark.slow
def test_no_test_sleeps_that_was_not_judged() -> None:
    found: dict[str, list[int]] = {}
    for file in (ROOT / "tests").rglob("*.py"):
        name, text = str(file.relative_to(ROOT)), file.read_text()
        if not name.startswith(PACED) and SLEEP.search(text):
            found[name] = list(waits(ast.parse(text)))
    assert {
        name: lines for name, lines in found.items() if len(lines) > ALLOWED.get(name, 0)
    } == {}, "wait for a condition: tests/support/waiting.py"
    assert {
        name: count for name, count in ALLOWED.items() if len(found.get(name, ())) < count
    } == {}, "fewer are needed: the list says so"


def test_a_wait_is_a_sleep_outside_of_every_loop() -> None:
    source = """
async def test() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0.1)
    while not done():
        await asyncio.sleep(0.1)
    async with it:
        time.sleep(2)
"""
    assert list(waits(ast.parse(source))) == [4, 8]

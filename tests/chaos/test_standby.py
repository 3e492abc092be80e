"""What the checker says of two machines at rest: a planted difference of each kind is seen."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chaos.faults_standby import of_machines

ROWS: dict[str, list[tuple[Any, ...]]] = {
    "lane": [("VID-001", "bulk", 7)],
    "command": [("c-1", "done")],
}


def status(*, ready: bool = True, leads: str = "a") -> dict[str, Any]:
    follow = [{"machine": "b", "ready": ready, "why": "" if ready else "it waits for a copy"}]
    return {"leads": leads, "follow": follow}


def test_a_leader_and_a_ready_follower_with_the_same_rows_are_well() -> None:
    assert of_machines(status(), ROWS, {**ROWS}) == []


@pytest.mark.parametrize(
    ("said", "other", "wrong"),
    [
        (status(ready=False), ROWS, "machine b is not ready: it waits for a copy"),
        ({}, ROWS, "no machine leads"),
        (status(), ROWS | {"command": []}, "the machines' hub.db differ in table command"),
        (status(), {"lane": ROWS["lane"]}, "the machines' hub.db differ in table command"),
        (status(), ROWS | {"more": [(1,)]}, "the machines' hub.db differ in table more"),
    ],
)
def test_a_machine_that_is_not_ready_or_has_other_rows_is_seen(
    said: dict[str, Any], other: dict[str, Any], wrong: str
) -> None:
    assert of_machines(said, ROWS, other) == [wrong]

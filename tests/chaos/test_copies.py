"""Second agents, lost registries, older copies of ledgers: each in a short run of fixed faults."""

from __future__ import annotations

import pytest

from tests.chaos.faults_second import not_refused

SAID = (
    "backhaul_agent.errors.LedgerInUseError: x/ledger.db: another agent is using it (pid {}): stop"
)


@pytest.mark.parametrize(
    ("status", "pid", "refused"), [(1, 7, True), (0, 7, False), (1, 8, False), (None, 7, False)]
)
def test_refused_is_what_ends_with_1_and_names_the_first(
    status: int | None, pid: int, refused: bool
) -> None:
    assert (not not_refused(status, SAID.format(pid), 7)) == refused
    assert not_refused(1, "sqlite3.OperationalError: database is locked", 7)

"""With real servers: what a file with servers left open is named, and fails no test of another file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.leaving import ran

pytestmark = pytest.mark.nats

COLLECTS = """
import gc

def test_collects():
    gc.collect()
"""


@pytest.mark.parametrize(
    ("mark", "failed"), [("@pytest.mark.nats", False), ("", True)], ids=["servers", "none"]
)
def test_only_what_had_servers_may_leave_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: str, failed: bool
) -> None:
    (tmp_path / "test_b.py").write_text(COLLECTS)
    said = ran(tmp_path, monkeypatch, mark)
    assert bool(said.returncode) == failed, said.stdout
    assert ("left by test_a.py: unclosed <socket" in said.stdout) != failed
